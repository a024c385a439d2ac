"""What policies are tried on: generated systems, paths that no linear Gaussian model fits, recorded data."""
