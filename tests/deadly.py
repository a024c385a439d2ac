"""Work for worker processes, which import it by name: some of it kills them."""

import os
import signal
import time
from pathlib import Path


def square(number: int, folder: str, deadly: bool) -> int:
    """Die in the middle of the work the first time, if deadly."""
    mark = Path(folder) / str(number)
    if deadly and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def refuses(number: int) -> int:
    if number == 2:
        raise ValueError(f"no {number} today")
    return number


def always_dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def waits(folder: str) -> None:
    (Path(folder) / "pid").write_text(str(os.getpid()))
    os.rename(Path(folder) / "pid", Path(folder) / "begun")
    time.sleep(600)
