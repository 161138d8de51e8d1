"""Whether the disk has room. Publishing leaves a reserve for FINs, checkpoints and cleaning; a file holds half of it.

Other programs may fill the disk to the last byte. Then the file is removed, so that everything except publishing still has
room.

See docs/design/log.md#a-full-disk.
"""

from nsqd.storage.log.disk import Disk
from shared.log import log

RESERVE = 128 * 1024 * 1024  # bytes that publishing leaves free or held by the file
MOST_OF_DISK = 16  # on a small disk, the reserve is one part in this many of it
LOOK_AFTER = 1024 * 1024  # bytes written until the next look, at most: a burst uses up a reserve within a second


def reserve_of(total: int) -> int:
    """Return the bytes that publishing leaves free of a disk of `total` bytes."""
    return min(RESERVE, total // MOST_OF_DISK)


class Space:
    """The room on the log's disk."""

    def __init__(self, disk: Disk) -> None:
        self.full = ""  # why nothing may be published; "": there is enough room
        self._disk = disk
        self._held = disk.reserved()  # bytes of the file that holds space
        self._look_after = LOOK_AFTER
        self.look_at = 0  # log position at which `check_free` is to be called again

    def check_free(self, end: int) -> None:
        """Check how much room there is, and adjust `full` and the file. `end`: the log's current end."""
        self.look_at = end + self._look_after
        try:
            free, reserve = self._disk.free(), reserve_of(self._disk.total())
            self._look_after = min(LOOK_AFTER, reserve // 8)
            self.look_at = end + self._look_after
            if not self._held and free >= reserve:
                self._disk.reserve(reserve // 2)
                self._held = reserve // 2
                free -= self._held
        except OSError as error:
            log.error("LOG: cannot read the free disk space: %s", error)
            return
        if free + self._held < reserve and not self.full:
            self.full = "no space left for the log"
            wanted = reserve - self._held
            log.error(
                "LOG: %d MiB are free on the disk: publishes are rejected until %d MiB are free",
                free >> 20,
                wanted >> 20,
            )
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
