"""The embedded Triton server and its supervisor, the client, the performance measurement, and the doctor."""
