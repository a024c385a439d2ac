"""Long trials of what must never happen: calls that tear, files that do harm. See `python -m tests.torture --help`."""
