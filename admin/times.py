"""Times as elements of a page: UTC for readers without scripts; times.js shows them in the zone that the reader chose. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

UNKNOWN = "-"
FRESH = 8_000_000_000  # ns: an older value is shown with its time. On a busy node, answers may be five seconds old


def iso(at: int) -> str:
    """Return a time, ns since the epoch, as an HTML time element has it; "" for none, or one out of range."""
    try:
        return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if at else ""
    except (ValueError, OverflowError, OSError):
        return ""


_CLOCK, _SECOND, _MOMENT = slice(11, 19), slice(0, 19), slice(0, 23)  # parts of `iso`


def clock(at: int) -> str:
    """Return the time of day for texts, such as "11:03:20 UTC"; - for none."""
    return _text(at, _CLOCK)


def second(at: int) -> str:
    """Return a time to the second for texts, such as "2026-11-28 11:03:20 UTC"; - for none."""
    return _text(at, _SECOND)


def moment(at: int) -> str:
    """Return a time to the millisecond for texts; - for none."""
    return _text(at, _MOMENT)


def old(at: int, now: int) -> str:
    """Return ", as of" and the time of an old value; "" for a current one, or if its time is unknown."""
    return f", as of {clock(at)}" if is_old(at, now) else ""


def is_old(at: int, now: int) -> bool:
    """Return whether a value that a node reported at that time is shown with the time."""
    return bool(at) and now - at > FRESH


def moment_element(at: int) -> Markup | str:
    """Return a time to the millisecond as an element; - for none."""
    return _element(at, "ms", _MOMENT)


def second_element(at: int) -> Markup | str:
    """Return a time to the second as an element; - for none."""
    return _element(at, "s", _SECOND)


def clock_element(at: int) -> Markup | str:
    """Return the time of day as an element; - for none."""
    return _element(at, "clock", _CLOCK)


def age_element(at: int, words: str) -> Markup | str:
    """Return a duration in words as an element whose title is the time when it began, to the second; - for none."""
    element = Markup('<time datetime="{}" data-form="s" title="{}">{}</time>')
    return element.format(full, _text(at, _SECOND), words) if (full := iso(at)) else UNKNOWN


def _text(at: int, part: slice) -> str:
    return f"{full[part].replace('T', ' ')} UTC" if (full := iso(at)) else UNKNOWN


def _element(at: int, form: str, part: slice) -> Markup | str:
    element = Markup('<time datetime="{}" data-form="{}">{}</time>')
    return element.format(full, form, _text(at, part)) if (full := iso(at)) else UNKNOWN
