"""How hard property tests try: as hard as they say in `make test`, a fifth of it in `make unit`."""

from hypothesis import settings

FULL = 100  # examples of a test that names no number; hypothesis's own default


def examples(full: int) -> int:
    """Return the number of examples of a test that tries `full` in `make test`, under the profile that conftest.py loaded."""
    return max(1, full * settings().max_examples // FULL)
