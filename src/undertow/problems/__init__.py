"""Test problems for policies: generated systems, paths that no linear Gaussian model fits, recorded data."""
