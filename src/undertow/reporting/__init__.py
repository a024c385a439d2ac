"""Shared by all reports: figures, pages, folders of results, numbers as text, threads with progress."""
