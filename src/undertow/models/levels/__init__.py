"""A level for each arm, one that all arms share, and weights on features, estimated from a log."""
