"""The Triton backend: code that runs in the stub process of a model, and the model configuration."""
