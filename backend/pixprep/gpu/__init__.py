"""GPU: all of CUDA."""
