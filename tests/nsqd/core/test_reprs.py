"""Every object in the output of a failing test says what it is."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import nsqd.core
from tests.cases import each

STAND_INS = ("_ClosedSink", "_DeletedTopic")  # what takes the place of something that is gone


def classes() -> Iterator[type]:
    """All of the core that can have instances."""
    for module in pkgutil.walk_packages(nsqd.core.__path__, "nsqd.core."):
        for _, found in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if found.__module__ == module.name and not getattr(found, "_is_protocol", False):
                yield found


@each("found", [one for one in classes() if one.__name__ not in STAND_INS])
def test_it_has_a_repr_of_its_own(found: type) -> None:
    assert found.__repr__ is not object.__repr__
