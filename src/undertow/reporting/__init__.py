"""What all reports share: figures, pages, folders of results, numbers as text, threads with progress."""
