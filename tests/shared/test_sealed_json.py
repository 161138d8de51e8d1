"""JSON files with a checksum."""

import pytest

from shared.sealed_json import seal, unseal

CONTENT = {"number": 7, "names": ["a", "b"], "nested": {"is_so": True}}


def test_what_was_sealed_is_read_and_another_content_is_refused() -> None:
    assert unseal(seal(CONTENT)) == CONTENT
    assert unseal(seal(CONTENT).replace(b"\n", b" ")) == CONTENT, "how the values are written does not matter"
    for data in (b"", b"[]", b"{}", b'{"number": 7}', b"\xff", seal(CONTENT).replace(b"7", b"6")):
        with pytest.raises(ValueError):
            unseal(data)
