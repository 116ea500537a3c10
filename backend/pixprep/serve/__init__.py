"""What a user runs beside Triton: the embedded server and who looks after it, the client, perf, the doctor."""
