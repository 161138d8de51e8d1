"""Long looks at all topics, between turns: in portions, so that no turn waits for long. In the trio thread."""

import trio

PORTION = 0.001  # s of looking in a row: then a turn may come in between


class Portions:
    """Call `breathe` after each step of the look."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = trio.current_time() + PORTION

    async def breathe(self) -> None:
        """Let a turn come in between, if it is time to."""
        if trio.current_time() > self._until:
            await trio.lowlevel.checkpoint()
            self._until = trio.current_time() + PORTION
