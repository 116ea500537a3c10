"""Programs that a user runs with Triton: the embedded server and its supervisor, the client, perf, the doctor."""
