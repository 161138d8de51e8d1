"""Files that shall survive a power cut."""

import os
from pathlib import Path


def sync_directory(path: Path) -> None:
    """Make durable which names there are. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
