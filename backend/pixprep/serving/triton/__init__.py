"""Parts inside Triton's process: the backend's model, its configuration, and what watches over it."""
