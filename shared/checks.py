"""What may be wrong with the value of an option. Each function makes a check: value in, what is wrong with it out, or ""."""

from collections.abc import Callable

from shared.log import LEVELS


def at_least(least: int) -> Callable[[int], str]:
    """A number that is not too small."""
    return lambda value: f"want {least} or more" if value < least else ""


def read_word(*known: str) -> Callable[[str], str]:
    """A reader (not a check) of one of some words, in any case: the word in lower case, or ValueError."""

    def read(text: str) -> str:
        if text.lower() not in known:
            raise ValueError(f"want one of {', '.join(known)}")
        return text.lower()

    return read


read_level = read_word(*LEVELS)
