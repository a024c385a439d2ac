"""What time does to a model: a log, fits, late rewards, and the first rounds."""
