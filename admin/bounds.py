"""What answers of nodes may take, all together: a budget of memory, and one thread in which large ones are parsed.

One Bounds serves the whole process. An answer is charged for its bytes while it is read, for what parsing may take while it is
parsed, and then for what it holds, as long as anybody keeps it. Used in the HTTP thread's event loop only.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from shared.http.bounded import AnswerError, memory_of, memory_to_parse, parse_json

MEMORY_PER_BYTE = 8  # of an answer: the /stats of a node of 10,000 topics takes 7 to 10 by its estimate, 3 in fact
SHARES = 16  # of an answer's bytes, that all answers may hold together
AT_ONCE = 64 * 1024  # bytes that are parsed in the event loop: 2 ms at the worst

T = TypeVar("T")


class Answer(dict[str, Any]):
    """An object that a node answered. `memory`: how many bytes it holds."""

    __slots__ = ("__weakref__", "memory")

    def __init__(self, told: dict[str, Any], memory: int) -> None:
        super().__init__(told)
        self.memory = memory


class Bounds:
    """The limits of one nsqadmin, and what the answers that it keeps hold of them. For one event loop."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` is how long one answer may be; the other limits follow from it."""
        self.most_bytes = most_bytes
        self.most_memory = MEMORY_PER_BYTE * most_bytes
        self.budget = SHARES * most_bytes
        self.held = 0  # bytes of the budget
        self._parsing = asyncio.Lock()  # one at a time: each may take as much as an answer may
        self._thread = ThreadPoolExecutor(1, "answers")

    def take(self, size: int) -> None:
        """Charge so many bytes. Raises AnswerError where the budget does not have them."""
        if self.held + size > self.budget:
            raise AnswerError(
                f"answered while other answers hold {self.held} of {self.budget} bytes: see -max-upstream-response"
            )
        self.held += size

    def give_back(self, size: int) -> None:
        """Return so many bytes to the budget."""
        self.held -= size

    async def parse(self, content: bytes) -> tuple[Any, int]:
        """The value, and how many bytes of memory it holds, which are not charged. Raises AnswerError."""
        needed = memory_to_parse(content)
        if needed > self.most_memory:
            raise AnswerError(f"answered JSON that may take more than {self.most_memory} bytes of memory")
        async with self._parsing:
            self.take(needed)
            try:
                return await self.away(len(content), lambda: _parsed(content, self.most_memory))
            finally:
                self.give_back(needed)

    async def parse_answer(self, content: bytes) -> Answer:
        """Likewise, an object, charged until nobody keeps it. What is wrapped as nsqd before 1.0 did is unwrapped."""
        told, memory = await self.parse(content)
        if isinstance(told, dict) and isinstance(told.get("data"), dict) and "status_code" in told:
            told = told["data"]
        if not isinstance(told, dict):
            raise AnswerError("answered something else than an object")
        answer = Answer(told, memory)
        self.take(memory)
        weakref.finalize(answer, self.give_back, memory).atexit = False
        return answer

    async def away(self, size: int, function: Callable[[], T]) -> T:
        """Call it; in the thread where it has to do with more than AT_ONCE bytes, so that others are served meanwhile."""
        if size <= AT_ONCE:
            return function()
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def close(self) -> None:
        """Stop the thread that parses; what it has not begun is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _parsed(content: bytes, most_memory: int) -> tuple[Any, int]:
    value = parse_json(content, most_memory)
    return value, memory_of(value)
