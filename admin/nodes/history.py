"""The history of topics from the rollups of a lake, which reaches further back than the nodes' own series.

`penstock pipeline history` reads them, in a process of its own: Parquet needs packages that nsqadmin does not.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from admin.nodes.merge import LONGEST_NAME, items
from shared.http.bounded import AnswerError, parse_object
from shared.http.errors import HttpError
from shared.json_fields import JsonObject, number, objects, text
from shared.log import log

GRAINS = {"minute": 180, "hour": 168, "day": 365}  # grain -> how many are shown
MOST_BYTES, MOST_MEMORY = 8 * 1024 * 1024, 64 * 1024 * 1024  # limits of the process's output: as text, and parsed
MOST_WAITING = 4  # requests that wait; a process takes 1 to 2 s
KEPT, MOST_KEPT = 60.0, 100  # s that an answer is kept, also one without a topic; number of answers
FAILED = 10.0  # s without reading after a lake could not be read
TIMEOUT = 30.0  # s
HEIGHT, BAR = 100, 6  # of the plot, in SVG units


@dataclass(slots=True)
class History:
    """The history of one lake. One process at a time reads it, few requests wait, and answers are cached."""

    lake: str
    clock: Callable[[], float] = time.monotonic
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _waiting: int = 0  # requests that wait for the lock or hold it
    # (topic, grain) -> expiry and answer.
    _kept: OrderedDict[tuple[str, str], tuple[float, JsonObject]] = field(default_factory=OrderedDict)
    _problem: str = ""  # why the last read of the lake failed
    _problem_until: float = 0.0

    async def rollups(self, topic: str, grain: str) -> JsonObject:
        """Return the command's output for a topic, or for all topics with "".

        Raises HttpError 400 or 404 for wrong arguments, 502 if the lake cannot be read, 503 if too many requests wait.
        """
        if grain not in GRAINS:
            raise HttpError(400, f"Unknown interval {grain[:64]}: use minute, hour or day.")
        if len(topic) > LONGEST_NAME or not topic.isprintable():
            raise HttpError(404, "Invalid topic name.")
        found = self._known(topic, grain)
        if found is None and self._waiting >= MOST_WAITING:
            raise HttpError(503, "Too many requests read the lake at the same time. Try again in a few seconds.")
        if found is None:
            self._waiting += 1
            try:
                async with self._one:
                    found = self._known(topic, grain)  # another request may have asked the same meanwhile
                    found = await self._read(topic, grain) if found is None else found
            finally:
                self._waiting -= 1
        return found

    def _known(self, topic: str, grain: str) -> JsonObject | None:
        """Return a cached answer, or None. Raises HttpError 502 for FAILED seconds after a failure, whatever the topic."""
        now = self.clock()
        if now < self._problem_until:
            raise HttpError(502, self._problem)
        until, data = self._kept.get((topic, grain), (0.0, None))
        return data if now < until else None

    async def _read(self, topic: str, grain: str) -> JsonObject:
        command = [sys.executable, "-m", "penstock.launch", "penstock", "pipeline", "history", f"--lake={self.lake}"]
        command += [f"--grain={grain}", f"--last={GRAINS[grain]}"] + ([f"--topic={topic}"] if topic else [])
        output, problem = await self._run(command)
        try:
            data = parse_object(output, MOST_MEMORY)
        except AnswerError:
            log.error("HISTORY: cannot read the lake %s: %s", self.lake, problem)
            self._problem = f"Cannot read the lake {self.lake}: {problem}"
            self._problem_until = self.clock() + FAILED
            raise HttpError(502, self._problem) from None
        self._kept[topic, grain] = self.clock() + KEPT, data
        self._kept.move_to_end((topic, grain))
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return data

    @staticmethod
    async def _run(command: list[str]) -> tuple[bytes, str]:
        """Return the output of the process, and the last line of its errors."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, limit=MOST_BYTES)
        try:
            async with asyncio.timeout(TIMEOUT):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return b"", f"reading took longer than {TIMEOUT:.0f} s"
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return output[:MOST_BYTES], lines[-1][:500] if lines else f"exit code {process.returncode}"


def history_view(data: JsonObject) -> JsonObject:
    """Return the fields that the page shows, with all numbers checked."""
    step, begin = max(1, number(data.get("step"))), number(data.get("from"))
    messages, sizes = ([number(one) for one in items(data.get(name))] for name in ("messages", "bytes"))
    largest = max(messages, default=0)
    bars = [
        {
            "at": (begin + place * step) * 1_000_000_000,
            "messages": count,
            "bytes": size,
            "x": place * BAR,
            "height": round(HEIGHT * count / largest, 2) if largest else 0,
        }
        for place, (count, size) in enumerate(zip(messages, sizes, strict=False))
    ]
    return {
        "grain": text(data.get("grain")),
        "bars": bars,
        "width": max(BAR, BAR * len(bars)),
        "largest": largest,
        "waiting": max(0, number(data.get("archived")) - number(data.get("rolled_up"))),
        "topics": [_row(one, "topic") for one in objects(data.get("topics"))],
        "producers": [_row(one, "producer") for one in objects(data.get("producers"))],
        "channels": [
            {name: text(value) if name == "channel" else number(value) for name, value in one.items()}
            for one in objects(data.get("channels"))
        ],
    }


def _row(data: JsonObject, key: str) -> JsonObject:
    return {key: text(data.get(key)), "messages": number(data.get("messages")), "bytes": number(data.get("bytes"))}
