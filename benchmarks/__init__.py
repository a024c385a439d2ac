"""Measurements, against the readable twins, C++ and other libraries: see README.md beside this file."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the folder of the twins
