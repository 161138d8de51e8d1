"""uvicorn's server without its command line, which imports click and multiprocessing.

The package `uvicorn` imports `uvicorn.main` for its own names alone; while it is imported here, a module without contents
stands for that one. A program that has imported uvicorn before has all of it.
"""

from __future__ import annotations

import sys
from types import ModuleType

COMMAND_LINE = "uvicorn.main"


class _Absent(ModuleType):
    """A module of which every name is None."""

    def __getattr__(self, name: str) -> None:
        return None


_is_wanted = "uvicorn" in sys.modules
if not _is_wanted:
    sys.modules[COMMAND_LINE] = _Absent(COMMAND_LINE)
try:
    from uvicorn.config import Config
    from uvicorn.server import Server
finally:
    if not _is_wanted:
        del sys.modules[COMMAND_LINE]

__all__ = ["Config", "Server"]
