"""A level for each arm with weights on known features, estimated from a log."""
