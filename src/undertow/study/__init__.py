"""Studies: a plan as data, run in resumable chunks, reported in tables, figures and one page."""
