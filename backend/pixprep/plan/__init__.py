"""What a pipeline is compiled to."""
