"""Whether the disk has room. Publishing leaves a reserve for FINs, checkpoints and cleaning; a file holds half of it.

Other programs may fill the disk to the last byte. Then the file is removed, so that everything except publishing still has
room.

See docs/contributing/design/log.md#a-full-disk.
"""

from nsqd.storage.log.disk import Disk
from shared.log import log

RESERVE = 128 * 1024 * 1024  # bytes that publishing leaves free or held by the file
MOST_OF_DISK = 16  # on a small disk, the reserve is one part in this many of it
CHECK_AFTER = 1024 * 1024  # bytes written until the next check, at most: a burst uses up a reserve within a second


def reserve_of(total: int) -> int:
    """Return the bytes that publishing leaves free of a disk of `total` bytes."""
    return min(RESERVE, total // MOST_OF_DISK)


class Space:
    """The room on the log's disk."""

    def __init__(self, disk: Disk) -> None:
        self.full = ""  # why nothing may be published; "": there is enough room
        self._disk = disk
        self._held = disk.reserved()  # bytes of the file that holds space
        self._interval = CHECK_AFTER
        self.check_at = 0  # log position at which `check_free` is to be called again

    def check_free(self, end: int) -> None:
        """Check how much room there is, and adjust `full` and the file. `end`: the log's current end."""
        self.check_at = end + self._interval
        try:
            free, reserve = self._disk.free(), reserve_of(self._disk.total())
            self._interval = min(CHECK_AFTER, reserve // 8)
            self.check_at = end + self._interval
            if not self._held and free >= reserve:
                self._disk.reserve(reserve // 2)
                self._held = reserve // 2
                free -= self._held
        except OSError as error:
            log.error("LOG: cannot read the free disk space: %s", error)
            return
        if free + self._held < reserve and not self.full:
            self.full = "no space left for the log"
            line = "LOG: %d MiB are free on the disk: publishes are rejected until %d MiB are free"
            log.error(line, free >> 20, (reserve - self._held) >> 20)
        elif free + self._held >= reserve and self.full:
            self.full = ""
            log.info("LOG: enough disk space is free, publishes are accepted again")

    def release_reserve(self) -> bool:
        """Remove the file, because a write found no space. Returns False if there is no file, or removing it failed."""
        if not self._held:
            return False
        try:
            self._disk.release()
        except OSError as error:
            log.error("LOG: cannot remove the file that reserves disk space: %s", error)
            return False
        self._held = 0
        return True
