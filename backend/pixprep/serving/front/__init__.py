"""The front: a small HTTP server before Triton's, which refuses what a website sends and what ends Triton."""
