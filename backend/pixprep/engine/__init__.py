"""The engine, which converts encoded images to tensors on a CPU."""
