"""Steps on pixel values, for images of known size."""
