"""Times as elements of a page: UTC for readers without scripts; times.js shows them in the zone that the reader chose. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

UNKNOWN = "-"
FRESH = 8_000_000_000  # ns: an older figure is shown with its time. A page's answers may be five seconds old, on a busy node


def iso(at: int) -> str:
    """Return a time, ns since the epoch, in the form of an HTML time element; "" for none, or one out of range."""
    try:
        return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if at else ""
    except (ValueError, OverflowError, OSError):
        return ""


def clock(at: int) -> str:
    """Return the time of day for texts, such as "11:03:20 UTC"; - for none."""
    return f"{iso(at)[11:19]} UTC" if iso(at) else UNKNOWN


def second(at: int) -> str:
    """Return a time to the second for texts, such as "2026-11-28 11:03:20 UTC"; - for none."""
    return f"{iso(at)[:19].replace('T', ' ')} UTC" if iso(at) else UNKNOWN


def old(at: int, now: int) -> str:
    """Return words with the time of a figure that is not one of now; "" for one of now, or if its time is not known."""
    return f", as of {clock(at)}" if is_old(at, now) else ""


def is_old(at: int, now: int) -> bool:
    """Return whether a figure that a node told at that time has to be shown with it."""
    return bool(at) and now - at > FRESH


def moment_element(at: int) -> Markup | str:
    """Return a time to the millisecond as an element; - for none."""
    return _element(at, "ms", slice(0, 23))


def second_element(at: int) -> Markup | str:
    """Return a time to the second as an element; - for none."""
    return _element(at, "s", slice(0, 19))


def clock_element(at: int) -> Markup | str:
    """Return the time of day as an element; - for none."""
    return _element(at, "clock", slice(11, 19))


def _element(at: int, form: str, shown: slice) -> Markup | str:
    text = iso(at)
    if not text:
        return UNKNOWN
    words = text[shown].replace("T", " ")
    return Markup('<time datetime="{}" data-form="{}">{} UTC</time>').format(text, form, words)
