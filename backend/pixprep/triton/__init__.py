"""pixprep and Triton Inference Server: the backend, model repositories, the embedded server, clients."""
