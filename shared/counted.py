"""Numbers with their nouns, for all pages, alarms and commands."""

import re


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, which is given in the singular: "1 job", "1,234 copies", "2 more alarm types"."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a regular noun."""
    if re.search("[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return noun + ("es" if re.search("(s|x|sh|ch)$", noun) else "s")
