"""The messages of a job while it works, and at its end."""

import sys


def say(text: str) -> None:
    """Print the text to standard error, for the operator."""
    print(text, file=sys.stderr, flush=True)
