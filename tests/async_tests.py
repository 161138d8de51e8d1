"""Tests that are async functions: each gets an event loop of its own, of asyncio or of both kinds."""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import pytest

BACKENDS = ("asyncio", "trio")
PATIENCE_S = 60.0

T = TypeVar("T")
Test = Callable[..., Awaitable[None]]


def run(backend: str, main: Callable[[], Awaitable[T]]) -> T:
    """Run an async function; it fails if it takes more than PATIENCE_S."""

    async def limited() -> T:
        with anyio.fail_after(PATIENCE_S):
            return await main()

    return anyio.run(limited, backend=backend)


def on_asyncio(test: Test, *more: str) -> Callable[..., None]:
    """Make a test of an async function. `more`: what it wants beside the fixtures of the function."""

    def runs(backend: str = "asyncio", **fixtures: Any) -> None:
        run(backend, lambda: test(**fixtures))

    names = [*more, *inspect.signature(test).parameters]
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    runs.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # from which pytest knows the fixtures
    runs.__dict__.update(test.__dict__)  # its marks
    runs.__name__, runs.__module__ = test.__name__, test.__module__
    return runs


def on_both(test: Test) -> Callable[..., None]:
    """Make two tests of an async function: one on the event loop of asyncio, and one on that of trio."""
    return pytest.mark.parametrize("backend", BACKENDS)(on_asyncio(test, "backend"))
