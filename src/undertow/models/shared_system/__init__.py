"""One hidden system that all contexts and arms share, estimated from a log."""
