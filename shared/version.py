"""What the daemons call themselves: the NSQ release whose behaviour they match, and their own.

On the wire (IDENTIFY, /info, /stats) the version is NSQ's: clients compare it with the releases they know.
"""

import sys

from penstock import __version__

NSQ_VERSION = "1.3.0"
PENSTOCK_VERSION = __version__


def version_line(program: str) -> str:
    """The answer to -version and the first line of the log, in the original's form; what is ours follows it.

    Tools read it with expressions such as `^[a-z]+ v[0-9.]+(-[a-z]+)? \\(built w/[a-z0-9.-]+\\)`.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{program} v{NSQ_VERSION} (built w/python{python}) penstock {PENSTOCK_VERSION}"
