"""A topic of its own for each test: those of a file share a node."""

from itertools import count

import pytest

_NUMBERS = count()


@pytest.fixture
def topic() -> str:
    return f"topic{next(_NUMBERS)}"
