"""The environment of every test: one thread for OpenBLAS, whose threads spin where the cores are busy."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a product of 3 x 3 took a minute of processor time at a load of 80
