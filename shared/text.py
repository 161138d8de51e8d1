"""Text that came out of JSON: it can hold half a character, which UTF-8 cannot."""

import re

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """Each half of a character becomes U+FFFD, as Go's JSON decoder does it."""
    return _LONE_SURROGATE.sub("\ufffd", text)
