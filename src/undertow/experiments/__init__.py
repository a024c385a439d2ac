"""Experiments with fixed designs: trials on many problems, the cost of live use, tests of the paper's theory."""
