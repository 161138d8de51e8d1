"""The names of nsq_to_file's files. Pure.

A name passes through three forms: the format that the user gives, the format of one topic on one host (`topic_format`), and
the name at one time (`at_time`), in which only <REV> is open. `with_revision` makes the path of it, relative to a directory.
"""

import re
from collections.abc import Callable
from datetime import datetime

REVISION = "<REV>"
DATETIME = "<DATETIME>"

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# English names and 24 hours whatever the locale is, as in Go.
_TOKENS: dict[str, Callable[[datetime], str]] = {
    "B": lambda when: MONTHS[when.month - 1],
    "b": lambda when: MONTHS[when.month - 1][:3],
    "m": lambda when: f"{when.month:02}",
    "A": lambda when: DAYS[when.weekday()],
    "a": lambda when: DAYS[when.weekday()][:3],
    "d": lambda when: f"{when.day:02}",
    "H": lambda when: f"{when.hour:02}",
    "I": lambda when: f"{(when.hour - 1) % 12 + 1:02}",
    "M": lambda when: f"{when.minute:02}",
    "S": lambda when: f"{when.second:02}",
    "Y": lambda when: f"{when.year:04}",
    "y": lambda when: f"{when.year % 100:02}",
    "p": lambda when: "PM" if when.hour >= 12 else "AM",
    "Z": lambda when: when.tzname() or "",
    "z": lambda when: when.strftime("%z")[:5],
    "%": lambda when: "%",
}
_TOKEN = re.compile("%([" + "".join(_TOKENS) + "])")


def strftime(format: str, when: datetime) -> str:
    """Return the format with its tokens (B b m A a d H I M S Y y p Z z %) replaced; all else stays. `when` has a zone."""
    return _TOKEN.sub(lambda match: _TOKENS[match[1]](when), format)


def host(identifier: str, hostname: str) -> str:
    """Return the replacement of <HOST>: -host-identifier with its tokens replaced, or the host's name up to the first dot."""
    short = hostname.partition(".")[0]
    return identifier.replace("<SHORT_HOST>", short).replace("<HOSTNAME>", hostname) if identifier else short


def topic_format(format: str, topic: str, host: str, pid: int, gzip: bool, has_revisions: bool) -> str:
    """Return the -filename-format of one topic, in which <REV> and <DATETIME> are open.

    Without revisions, <REV> vanishes. With gzip, the name ends with .gz. Raises ValueError if there are revisions and
    no <REV>.
    """
    if has_revisions and REVISION not in format:
        raise ValueError("missing <REV> in --filename-format when gzip, rotation, or work dir enabled")
    if not has_revisions:
        format = format.replace(REVISION, "")
    format = format.replace("<TOPIC>", topic).replace("<HOST>", host).replace("<PID>", str(pid))
    return format + ".gz" if gzip and not format.endswith(".gz") else format


def at_time(format: str, datetime_format: str, when: datetime) -> str:
    """Return the name at the time `when`, in which only <REV> is open."""
    return format.replace(DATETIME, strftime(datetime_format, when)) if DATETIME in format else format


def with_revision(name: str, revision: int) -> str:
    """Return the name with <REV> replaced by a dash and at least six digits."""
    return name.replace(REVISION, f"-{revision:06}")
