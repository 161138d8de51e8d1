"""JSON files with a checksum: a wrong bit in a number or a name would be believed otherwise."""

from __future__ import annotations

import json
import zlib
from typing import Any

_CRC = "crc32"


def seal(content: dict[str, Any]) -> bytes:
    """Return the bytes of the file."""
    return json.dumps({_CRC: _crc_of(content), **content}, indent=1).encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Return the content of a file. Raises ValueError if the file is corrupt."""
    content = json.loads(data)
    if not isinstance(content, dict) or content.pop(_CRC, None) != _crc_of(content):
        raise ValueError("its checksum is wrong")
    return content


def _crc_of(content: dict[str, Any]) -> int:
    """Return the checksum of the values, whatever their order and white space."""
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
