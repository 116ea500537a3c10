"""Programs that a user runs beside Triton: the embedded server and its supervisor, the client, perf, the doctor."""
