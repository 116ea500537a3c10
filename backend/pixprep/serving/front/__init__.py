"""The front: a small HTTP proxy that rejects requests from websites and requests that would crash Triton."""
