"""The base of stores and journals that are between the core and the storage, and see the calls that they override.

Those of a trace (nsqd/core/trace.py) and of spans (nsqd/core/spanned_store.py) may wrap each other.
"""

from types import FunctionType
from typing import Any


class Wrapper:
    """An object that passes on all calls to another one, except for those that a subclass overrides."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if isinstance(getattr(type(self._inner), name, None), FunctionType):  # no property: found at once from now on
            setattr(self, name, found)
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._inner!r}>"
