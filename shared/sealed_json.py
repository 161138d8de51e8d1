"""JSON files with a checksum: a wrong bit in a number or a name would be believed otherwise."""

from __future__ import annotations

import json
import zlib
from typing import Any

_CRC = "crc32"


def seal(content: dict[str, Any]) -> bytes:
    """Return the content of the file."""
    return json.dumps({_CRC: _crc_of(content), **content}, indent=1).encode()


def unseal(data: bytes) -> dict[str, Any]:
    """Return what was sealed. Raises ValueError if the file is damaged."""
    content = json.loads(data)
    if not isinstance(content, dict) or content.pop(_CRC, None) != _crc_of(content):
        raise ValueError("its checksum is wrong")
    return content


def _crc_of(content: dict[str, Any]) -> int:
    """Return the checksum of the values, however they are written."""
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
