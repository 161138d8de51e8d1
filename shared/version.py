"""What the daemons call themselves: the NSQ release whose behaviour they match, and their own.

On the wire (IDENTIFY, /info, /stats) the version is NSQ's: clients compare it with the releases they know.
"""

import platform

from penstock import __version__

NSQ_VERSION = "1.3.0"
PENSTOCK_VERSION = __version__


def version_line(program: str) -> str:
    """The answer to -version and the first line of the log. gnsq reads its beginning with a regular expression."""
    return f"{program} v{NSQ_VERSION} (built w/python{platform.python_version()}, penstock {PENSTOCK_VERSION})"
