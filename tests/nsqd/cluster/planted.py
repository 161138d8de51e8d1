"""Bugs that tests plant to see a simulator find them: functions that change the product for one test."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], None]


def setting(name: str, *changes: tuple[object, str, object]) -> Bug:
    """Return a bug of this name, which sets attributes: of what, which, and to what."""

    def plant(patch: Patch) -> None:
        for change in changes:
            patch.setattr(*change)

    plant.__name__ = name
    return plant


def instead_of(owner: object, name: str) -> Callable[[Callable[..., Any]], Bug]:
    """Make a bug of a function, which is called in place of `owner.name`, with the right one as the first argument."""

    def decorate(wrong: Callable[..., Any]) -> Bug:
        @wraps(wrong)
        def plant(patch: Patch) -> None:
            right = getattr(owner, name)
            patch.setattr(owner, name, lambda *args, **named: wrong(right, *args, **named))

        return plant

    return decorate
