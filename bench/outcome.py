"""The report of a load about its measured time."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a load in the measured time, as the load itself saw it."""

    messages: int
    seconds: float
    cpu: int = 0  # ns of the load's own CPU time
    p50: int | None = None  # ns, as are p99 and worst
    p99: int | None = None
    worst: int | None = None
    missing: int = 0  # messages that were due and did not come
    detail: str = ""


def timed(outcome: Outcome, times: list[int]) -> Outcome:
    """Add p50, p99 and worst of the times (ns) to the outcome, if there are any times."""
    if not times:
        return outcome
    times.sort()
    last = len(times) - 1
    return replace(outcome, p50=times[last // 2], p99=times[last * 99 // 100], worst=times[last])
