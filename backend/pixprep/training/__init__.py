"""Training: sources of samples, and the Loader that turns them into batches."""
