"""Divide long looks at all topics into portions, so that no turn waits for long. In the trio thread, between turns."""

import trio

PORTION = 0.001  # s of looking in a row, after which a turn may come in between


class TimeSlice:
    """The time that a long look may still take; the look calls `breathe` after each step."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = trio.current_time() + PORTION

    async def breathe(self) -> None:
        """Let a turn come in between, if this portion's time is over."""
        if trio.current_time() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = trio.current_time() + PORTION
