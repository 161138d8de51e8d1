"""The lines that jobs print about their progress and their result."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a line to standard error."""
    print(text, file=sys.stderr, flush=True)
