"""Training: sources of samples, their order, and the Loader that makes batches of them."""
