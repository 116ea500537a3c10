"""The random numbers of a sample, and the random parameters that ops make of them."""
