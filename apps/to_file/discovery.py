"""A thread that asks the nsqlookupds for their topics, since one that hangs must not stop the messages."""

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

if TYPE_CHECKING:
    from apps.cluster import Timeouts

RETRY_S = 5.0  # until the next attempt while no nsqlookupd answers


class TopicPoller:
    """Asks from construction until `stop`, at first at once. Only whole lists of valid names leave the thread."""

    def __init__(self, lookupds: Sequence[str], timeouts: "Timeouts", interval: float, settings: Settings) -> None:
        """Begin to ask. `settings`: those of the consumers. Raises ValueError for files that cannot be used."""
        self._lookupds = lookupds
        self._headers, self._tls = request_headers(settings), request_context(settings, lookupds)
        self._timeouts = timeouts
        self._interval = interval  # s; 0 or less: ask until there is an answer, and then no more
        self._fresh: list[str] | None = None  # the result for the owner; each side passes it on by one assignment
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="topic poller", daemon=True)
        self._thread.start()

    def latest_topics(self) -> list[str] | None:
        """Return the topics of the latest poll, or None if there was no answer since the last call."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def stop(self) -> None:
        """End the thread; if it hangs in a request, leave it behind, since it is a daemon thread."""
        self._stopping.set()
        self._thread.join(timeout=0.2)

    def _run(self) -> None:
        import trio

        while not self._stopping.is_set():
            topics = trio.run(self._poll)
            if topics is not None:
                self._fresh = topics
                if self._interval <= 0:
                    return
            self._stopping.wait(self._interval if topics is not None else min(RETRY_S, self._interval or RETRY_S))

    async def _poll(self) -> list[str] | None:
        """Return the topics that any nsqlookupd knows, or None if none answered."""
        from apps.cluster import Cluster, topic_names

        async with Cluster(self._timeouts, self._headers, self._tls) as cluster:
            answers = await cluster.ask(self._lookupds, "/topics", {})
        return topic_names(answers) if answers else None
