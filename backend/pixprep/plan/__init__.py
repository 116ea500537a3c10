"""Plan that a pipeline is compiled to, and its parts."""
