"""Limits for the answers of nodes: a memory budget for all together, and one thread that parses large ones.

One AnswerBudget serves the whole process, in the event loop of the HTTP thread. An answer is charged for its bytes while it is
read, for the memory that parsing may take while it is parsed, and then for the memory that it holds, until it is garbage.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shared.http.bounded import AnswerError, memory_of, memory_to_parse, parse_json

# Per byte of an answer: the /stats of a node of 10,000 topics takes 7 to 10 by its estimate, 3 in fact.
MEMORY_PER_BYTE = 8
SHARES = 16  # the budget of all answers, as a multiple of the longest answer's bytes
AT_ONCE = 64 * 1024  # bytes that are parsed in the event loop: 2 ms at worst

T = TypeVar("T")


class Answer(dict[str, Any]):
    """The JSON object that a node answered. `memory` is the number of bytes that it holds."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, data: dict[str, Any], memory: int) -> None:
        super().__init__(data)
        self.memory = memory


class AnswerBudget:
    """The limits of one nsqadmin, and how much of them current answers hold. For one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes  # of one answer; the other limits follow from it
        self.most_memory = MEMORY_PER_BYTE * most_bytes
        self.most_held = SHARES * most_bytes
        self.held = 0  # bytes of the budget in use
        self._parsing = asyncio.Lock()  # one at a time: each may take the memory of the largest answer
        self._thread = ThreadPoolExecutor(1, "answers")

    def charge(self, size: int) -> None:
        """Charge `size` bytes to the budget. Raises AnswerError if it does not have them."""
        if self.held + size > self.most_held:
            raise AnswerError(
                f"sent an answer while others hold {self.held} of {self.most_held} bytes: raise -max-upstream-response"
            )
        self.held += size

    def release(self, size: int) -> None:
        """Return `size` bytes to the budget."""
        self.held -= size

    async def parse(self, content: bytes) -> tuple[Any, int]:
        """Return the parsed value, and the bytes of memory that it holds, which are not charged. Raises AnswerError."""
        needed = memory_to_parse(content)
        if needed > self.most_memory:
            raise AnswerError(f"answered JSON that may take more than {self.most_memory} bytes of memory")
        async with self._parsing:
            self.charge(needed)
            try:
                return await self.run_in_thread(len(content), lambda: _parsed(content, self.most_memory))
            finally:
                self.release(needed)

    async def parse_answer(self, content: bytes) -> Answer:
        """Return the parsed object, which stays charged until it is garbage. Raises AnswerError.

        The envelope of nsqd before 1.0 is unwrapped.
        """
        data, memory = await self.parse(content)
        if isinstance(data, dict) and isinstance(data.get("data"), dict) and "status_code" in data:
            data = data["data"]
        if not isinstance(data, dict):
            raise AnswerError("answered JSON that is not an object")
        answer = Answer(data, memory)
        self.charge(memory)
        weakref.finalize(answer, self.release, memory).atexit = False
        return answer

    async def run_in_thread(self, size: int, function: Callable[[], T]) -> T:
        """Call the function, in the thread if `size` exceeds AT_ONCE bytes, so that other requests are served meanwhile."""
        if size <= AT_ONCE:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def _parsed(content: bytes, most_memory: int) -> tuple[Any, int]:
    value = parse_json(content, most_memory)
    return value, memory_of(value)
