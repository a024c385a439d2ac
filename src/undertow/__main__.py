"""The command `undertow`, which is also `python -m undertow`."""

import sys

__all__ = ["main"]


def main() -> None:
    """Load the command line and run it; Ctrl-C ends it with status 130, also while it is loaded."""
    try:
        from undertow.cli import main as run

        run()
    except KeyboardInterrupt:
        print("\nundertow: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
