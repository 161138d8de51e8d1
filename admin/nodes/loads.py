"""The load of each node: memory, CPU and publish rate, from two answers of each. Pure; nodes may lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admin.nodes.merge import fields
from shared.json_fields import JsonObject, number


@dataclass(frozen=True, slots=True)
class NodeLoad:
    """The CPU, the memory and the publish rate of one node."""

    started: int = 0  # s since the epoch; 0: unknown
    memory: int = 0  # bytes that are resident; 0: unknown
    cpu: float | None = None  # percent of one core; None: not known yet
    rate_in: float | None = None  # messages published per second; None: not known yet


def loads_of(
    now: Mapping[str, JsonObject], before: Mapping[str, JsonObject], seconds: float
) -> dict[str, NodeLoad]:  # fmt: skip
    """Return the load of each node by address. `seconds`: between the answers; 0: there are none before.

    A node that was restarted in between counts from 0 again: its rates are not known.
    """
    return {
        address: _load(answer, before.get(address, {}) if seconds > 0 else {}, seconds)
        for address, answer in now.items()
    }


def _load(now: JsonObject, before: JsonObject, seconds: float) -> NodeLoad:
    process, earlier = fields(now.get("process")), fields(before.get("process"))
    started, memory = (max(0, number(process.get(name))) for name in ("start_time", "memory"))
    cpu = number(process.get("cpu_ms")) - number(earlier.get("cpu_ms"))
    published = number(fields(now.get("totals")).get("messages")) - number(fields(before.get("totals")).get("messages"))
    if not earlier or started != number(earlier.get("start_time")) or min(cpu, published) < 0:
        return NodeLoad(started, memory)
    return NodeLoad(started, memory, cpu / 10 / seconds, published / seconds)
