"""`python -m undertow` is `undertow`."""

from undertow.cli import main

if __name__ == "__main__":
    main()
