"""The plan, which is the compiled form of a pipeline, and its steps."""
