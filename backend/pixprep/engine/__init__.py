"""Engine: bytes to tensors on a CPU."""
