"""The data side: where training samples come from, and how they reach a model."""
