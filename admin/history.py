"""What rollups of a lake tell of topics, longer ago than nodes remember. `penstock pipeline history` reads them, in a process
of its own: Parquet needs packages that nsqadmin does not."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass, field

from admin.merge import Told, number, objects, text
from shared.http.errors import HttpError
from shared.log import log

GRAINS = {"minute": 180, "hour": 168, "day": 365}  # and how many of each are shown
MOST_BYTES = 8 * 1024 * 1024
TIMEOUT = 30.0  # s
HEIGHT, BAR = 100, 6  # of the plot, in its own units


@dataclass(slots=True)
class History:
    """Of one lake; one process at a time."""

    lake: str
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def told(self, topic: str, grain: str) -> Told:
        """As the command tells it. HttpError 400, 502."""
        if grain not in GRAINS:
            raise HttpError(400, f"there is no grain {grain[:64]}")
        command = [sys.executable, "-m", "penstock.launch", "penstock", "pipeline", "history", "--lake", self.lake]
        command += ["--grain", grain, "--last", str(GRAINS[grain])] + (["--topic", topic] if topic else [])
        async with self._one:
            output, problem = await self._run(command)
        try:
            told = json.loads(output)
        except (ValueError, RecursionError):
            log.error("HISTORY: %s", problem)
            raise HttpError(502, f"the lake {self.lake} cannot be read: {problem}") from None
        return told if isinstance(told, dict) else {}

    @staticmethod
    async def _run(command: list[str]) -> tuple[bytes, str]:
        """What it printed, and the last line of what it complained of."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, limit=MOST_BYTES)
        try:
            async with asyncio.timeout(TIMEOUT):
                output, errors = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            return b"", f"it took longer than {TIMEOUT:.0f} s"
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return output[:MOST_BYTES], lines[-1][:500] if lines else f"exit code {process.returncode}"


def history_view(told: Told) -> Told:
    """For the page; numbers are numbers."""
    step, begin = max(1, number(told.get("step"))), number(told.get("from"))
    given = told.get("messages"), told.get("bytes")
    messages, sizes = ([number(one) for one in values] if isinstance(values, list) else [] for values in given)
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
        "grain": text(told.get("grain")),
        "bars": bars,
        "width": max(BAR, BAR * len(bars)),
        "largest": largest,
        "waiting": max(0, number(told.get("archived")) - number(told.get("rolled_up"))),
        "topics": [_row(one, "topic") for one in objects(told.get("topics"))],
        "producers": [_row(one, "producer") for one in objects(told.get("producers"))],
        "channels": [
            {name: text(value) if name == "channel" else number(value) for name, value in one.items()}
            for one in objects(told.get("channels"))
        ],
    }


def _row(told: Told, key: str) -> Told:
    return {key: text(told.get(key)), "messages": number(told.get("messages")), "bytes": number(told.get("bytes"))}
