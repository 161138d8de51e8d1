"""NSQ's own programs, for tests that compare ours with them. PENSTOCK_NSQ=DIRECTORY names where they are."""

import os
from pathlib import Path

import pytest


def original(program: str) -> str:
    """Return the path of an original program; skip the calling test, with the reason, if there is none."""
    directory = os.environ.get("PENSTOCK_NSQ", "")
    if not directory:
        pytest.skip("PENSTOCK_NSQ=DIRECTORY does not name NSQ's own programs")
    path = Path(directory) / program
    if not os.access(path, os.X_OK):
        pytest.skip(f"PENSTOCK_NSQ has no {program}")
    return str(path)
