"""What every room may use and none is about: checks of arguments, files, figures, pages, tables, threads."""
