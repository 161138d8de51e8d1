"""What a load did, as it saw it itself."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load did in the measured time, as it saw it."""

    messages: int
    seconds: float
    cpu: int = 0  # ns of the load's own
    p50: int | None = None  # ns; likewise p99 and worst
    p99: int | None = None
    worst: int | None = None
    missing: int = 0  # messages that were due and did not come
    detail: str = ""


def timed(outcome: Outcome, times: list[int]) -> Outcome:
    """The outcome with p50, p99 and worst of the times (ns), if there are any."""
    if not times:
        return outcome
    times.sort()
    last = len(times) - 1
    return replace(outcome, p50=times[last // 2], p99=times[last * 99 // 100], worst=times[last])
