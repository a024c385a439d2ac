"""Experiments with fixed designs: trials on many problems, the cost of live use, the paper's theory put to the test."""
