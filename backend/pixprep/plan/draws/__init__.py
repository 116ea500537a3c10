"""Random numbers of a sample, and the random parameters of ops that are computed from them."""
