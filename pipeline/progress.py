"""What a job tells while it works, and at its end."""

import sys


def say(text: str) -> None:
    """To whoever watches."""
    print(text, file=sys.stderr, flush=True)
