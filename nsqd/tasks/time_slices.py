"""Divide long loops over all topics, so that no turn waits for long. In the trio thread, between turns."""

import trio

LENGTH = 0.001  # s in a row, after which a turn may come in between


class TimeSlice:
    """The time that a long loop may still use in a row; the loop awaits `yield_if_due` after each step."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = trio.current_time() + LENGTH

    async def yield_if_due(self) -> None:
        """Let a turn come in between, if the time is over."""
        if trio.current_time() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = trio.current_time() + LENGTH
