"""Import a package without a part of it that only other programs need, and that takes longer to import than the rest."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, cast


class Placeholder(ModuleType):
    """A module of which every name is None, for packages that import names from the part that is left out."""

    def __getattr__(self, name: str) -> None:
        return None


@contextmanager
def without(*names: str, stand_in: ModuleType | None = None) -> Iterator[None]:
    """Leave out these modules while the block imports packages, unless they are imported already.

    `stand_in` replaces them. None: their import raises ImportError, which many packages expect.
    """
    modules = cast(dict[str, Any], sys.modules)
    absent = [name for name in names if name not in modules]
    modules.update(dict.fromkeys(absent, stand_in))
    try:
        yield
    finally:
        for name in absent:
            del modules[name]


def import_http_client() -> None:
    """Import the HTTP client without its command line and trio, which take longer than the client itself."""
    with without("httpx._main", "trio"):
        import httpcore
        import httpx

    assert httpcore
    assert httpx
