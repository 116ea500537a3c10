"""The front: a small HTTP server before Triton's that rejects requests of websites and requests that crash Triton."""
