"""JSON files with a checksum."""

from __future__ import annotations

import pytest

from shared.sealed_json import seal, unseal

CONTENT = {"number": 7, "names": ["a", "b"], "nested": {"is_so": True}}


def test_what_was_sealed_is_read() -> None:
    assert unseal(seal(CONTENT)) == CONTENT


def test_how_the_values_are_written_does_not_matter() -> None:
    assert unseal(seal(CONTENT).replace(b"\n", b" ")) == CONTENT


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"number": 7}', b"\xff", seal(CONTENT).replace(b"7", b"6")])
def test_another_content_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        unseal(data)
