"""Requests to nodes for pages, which cannot wait: a slow node's last answer stands for it, with its age.

The request continues in the background. A node that hangs delays the first page by PATIENCE, and later pages hardly.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from admin.nodes.answer_budget import Answer, AnswerBudget
from admin.nodes.observations import Observation, observation_of
from admin.nodes.places import Places
from admin.nodes.upstreams import Arguments, Times, UpstreamError, Upstreams, request_key, retrieve

PATIENCE = 1.0  # s to wait for a node that answered the last time
FAILING_PATIENCE = 0.02  # s to wait for a node that did not
LARGEST = 4 * 1024 * 1024  # bytes of memory of an answer that is remembered
IN_USE = 6.0  # s after its last use for which pages may still show an old answer, because they cache it
# Number of remembered answers; they may hold this fraction (1/SHARE) of the memory for all answers.
MOST, SHARE = 200, 8
FORGOTTEN = 600.0  # s after which an old answer expires, and a node that was not asked is no longer reported


@dataclass(slots=True)
class _LastAnswer:
    address: str
    task: asyncio.Task[Answer] | None = None
    answer: Answer | None = None
    at: float = 0.0
    stands_since: float = 0.0  # when an old answer first stood for a newer one; 0: the newest one was returned last
    stood: float = 0.0  # `at` of that old answer
    used_at: float = 0.0  # when it was last returned


class FallbackUpstreams(Upstreams):
    """Upstreams that return the last answer of a node that does not answer in time."""

    def __init__(
        self, times: Times, context: ssl.SSLContext, answer_budget: AnswerBudget, places: Places | None = None,
        has_certificate: bool = False, clock: Callable[[], float] = time.monotonic, patience: float = PATIENCE,
    ) -> None:  # fmt: skip
        """`patience`: s to wait for a node that answered the last time."""
        super().__init__(times, context, answer_budget, places, has_certificate)
        self._clock = clock
        self._patience = patience
        # called with a node's address, the observation in its answer, and the s since it was asked
        self.on_answer: Callable[[str, Observation | None, float], None] = lambda address, seen, seconds: None
        self._asked: OrderedDict[object, _LastAnswer] = OrderedDict()
        self._failing_since: dict[str, float] = {}  # by address: since when it has not answered

    def stale(self) -> dict[str, float]:
        """Return the nodes that do not answer, be it one kind of request, and for how many seconds.

        The last answer may be older.
        """
        now = self._clock()
        for key in [key for key, last in self._asked.items() if last.answer is not None and now - last.at > FORGOTTEN]:
            del self._asked[key]
        self._failing_since = {
            address: since for address, since in self._failing_since.items() if now - since < FORGOTTEN
        }
        found = {address: now - since for address, since in self._failing_since.items()}
        for last in self._standing():
            found.setdefault(last.address, now - last.stands_since)
        return found

    def data_age(self, address: str) -> float:
        """Return the age in s of the oldest answer that stands for a newer one of the node; 0 if there is none."""
        return max((self._clock() - last.stood for last in self._standing() if last.address == address), default=0.0)

    def _standing(self) -> Iterator[_LastAnswer]:
        """Yield the answers that pages show in place of newer ones."""
        now = self._clock()
        return (last for last in self._asked.values() if last.stands_since and now - last.used_at < IN_USE)

    def note_failure(self, address: str) -> None:
        """Note that another request to a node had no answer: the next ones do not wait for it."""
        self._failing_since.setdefault(address, self._clock())

    def forget(self, address: str) -> None:
        """Forget that a node does not answer, because it was dismissed."""
        self._failing_since.pop(address, None)
        for last in self._asked.values():
            last.stands_since = 0.0 if last.address == address else last.stands_since

    async def get_object(self, address: str, path: str, arguments: Arguments | None = None) -> Answer:
        """Return the node's answer, or its last one. Raises UpstreamError if there is none."""
        key = request_key(address, path, arguments)
        last = self._asked.setdefault(key, _LastAnswer(address))
        self._asked.move_to_end(key)
        if len(self._asked) > MOST:
            self._asked.popitem(last=False)
        if last.task is None or last.task.done():
            last.task = asyncio.create_task(self._fill(last, address, path, arguments))
            last.task.add_done_callback(retrieve)
        task = last.task
        await asyncio.wait({task}, timeout=FAILING_PATIENCE if address in self._failing_since else self._patience)
        if task.done():
            failure = task.exception()
            if failure is None or (isinstance(failure, UpstreamError) and failure.status):
                last.stands_since = 0.0
            if failure is None:
                return task.result()
            if not isinstance(failure, UpstreamError) or failure.status:
                raise failure
        else:
            failure = UpstreamError(f"http://{address}{path} has not answered yet")
            self.note_failure(address)
        if last.answer is None or self._clock() - last.at > FORGOTTEN:
            raise failure
        last.used_at, last.stood = self._clock(), last.at
        last.stands_since = last.stands_since or last.used_at
        return last.answer

    async def _fill(self, last: _LastAnswer, address: str, path: str, arguments: Arguments | None) -> Answer:
        began = self._clock()
        try:
            answer = await super().get_object(address, path, arguments)
        except UpstreamError as failure:
            if not failure.status:
                self._failing_since.setdefault(address, self._clock())
            raise
        now = self._clock()
        last.answer, last.at = (answer if answer.memory <= LARGEST else None), now
        self._evict_oldest()
        self._failing_since.pop(address, None)
        observe = lambda: observation_of(path, arguments or {}, answer)  # noqa: E731
        self.on_answer(address, await self.answer_budget.run_in_thread(answer.memory, observe), self._clock() - began)
        return answer

    def _evict_oldest(self) -> None:
        """Forget the oldest answers until the rest fits into its share of the memory budget."""
        held = sum(last.answer.memory for last in self._asked.values() if last.answer is not None)
        for last in self._asked.values():
            if held <= self.answer_budget.most_held // SHARE:
                return
            if last.answer is not None:
                held -= last.answer.memory
                last.answer = None
