"""A sample's random numbers, and what they make of an op."""
