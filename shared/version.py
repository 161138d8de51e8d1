"""The versions of the daemons: the NSQ release whose behavior they match, and Penstock's own.

On the wire (IDENTIFY, /info, /stats) the version is NSQ's, because clients compare it with the releases that they know.
"""

import sys

from penstock import __version__

NSQ_VERSION = "1.3.0"
PENSTOCK_VERSION = __version__
# s since the epoch, 2026-11-01: a clock that is earlier than the release is wrong. Move it with each release.
RELEASED = 1_793_491_200


def version_words(nsq: str, penstock: str) -> str:
    """Return the version of a daemon as pages show it. `penstock` "": it is an original."""
    return f"Penstock {penstock} (NSQ API {nsq})" if penstock else f"NSQ {nsq}" if nsq else "-"


def version_line(program: str) -> str:
    """Return the answer to -version and first line of the log: the original's form, followed by Penstock's version.

    Tools read it with expressions such as `^[a-z]+ v[0-9.]+(-[a-z]+)? \\(built w/[a-z0-9.-]+\\)`.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{program} v{NSQ_VERSION} (built w/python{python}) penstock {PENSTOCK_VERSION}"
