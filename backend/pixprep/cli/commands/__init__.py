"""Commands of ``pixprep``. Each module declares the options of one command, and runs it.

A module imports the packages that it needs when its command runs, so that ``pixprep --help`` is fast, and ``pixprep
run`` works without Triton's packages.
"""
