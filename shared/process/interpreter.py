"""Tell how the Python interpreter was built, as far as that decides how fast a daemon is.

This imports sysconfig's data, which takes milliseconds, so a daemon calls it when it serves already.
"""

import sysconfig
from collections.abc import Mapping
from typing import Any

from shared.log import log


def lacks_pgo(variables: Mapping[str, Any]) -> bool:
    """Return True if the interpreter was certainly built without profile-guided optimization (PGO).

    `variables` are sysconfig's. `configure --enable-optimizations` is the usual way to PGO. Debian records neither that nor its
    own way, but empties PGO_PROF_USE_FLAG, which otherwise has the compiler's flags whether they were used or not.
    """
    arguments, flags = variables.get("CONFIG_ARGS") or "", variables.get("PGO_PROF_USE_FLAG")
    return bool(arguments and flags) and "--enable-optimizations" not in arguments


def note_slow_interpreter() -> None:
    """Write a line to the log if the interpreter could be faster."""
    if lacks_pgo(sysconfig.get_config_vars()):
        log.info(
            "PYTHON: this interpreter was built without profile-guided optimization; one that was may take less CPU for each"
            " message (deploy/README.md#which-python)"
        )
