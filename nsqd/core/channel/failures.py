"""The rule by which a delivery has failed in the hands of a consumer: a message is buried after too many failures.

A consumer is given messages ahead of its work, as many as its window holds. So it matters which of them it had in its hands:
* a message that it requeues has failed, always (commands.py);
* a message that times out, or whose consumer loses its connection, has failed if the consumer had touched it, or had answered
  (finished, requeued or touched) a message that was delivered later, or if it was the consumer's oldest in flight.
All others waited in the window: they come back with their attempts, and without a failure.

The oldest message keeps a consumer silent: it is *stuck at* it. Until the consumer answers again, nothing else fails there,
however often its window is emptied by timeouts and filled again. So a window that times out bit by bit counts once. A consumer
that has a single message in flight is never stuck: each message fails by itself.

With shards (window.py), all messages of a client count as one window.
"""

from nsqd.core.channel.consumer import Consumer
from nsqd.core.channel.inflight import NOT_STUCK, DeliveryOwner, InFlight, Run

STUCK_ELSEWHERE = -2  # in place of an ordinal: the consumer is stuck at a message of another channel of its window
Held = list[tuple[InFlight, Consumer]]  # the messages in flight at a client, by shard
_ALL = 1 << 63  # above every ordinal

# why messages come back, as the reasons of burials
REQUEUED, TIMED_OUT, LOST = "requeued", "timed out", "connection lost"
LOWERED = "max_attempts was lowered"  # a message that had failed so often before
REASONS = frozenset((REQUEUED, TIMED_OUT, LOST, LOWERED))


def note_lost(in_flight: InFlight, consumer: Consumer) -> None:
    """Record which messages of the channel and its shards have failed because the consumer leaves. All are still in flight."""
    held = _held(in_flight, consumer)
    runs = _runs(held)
    if not runs:
        return
    if not _is_stuck(held):
        _find_stuck(held, runs)
    for run in runs:
        _note_failed(held, run)


def note_timed_out(in_flight: InFlight, consumer: Consumer, run: Run) -> None:
    """Record which messages of a run that is due, and that is still in flight, have failed."""
    held = _held(in_flight, consumer)
    is_first = not _is_stuck(held)
    if is_first:
        _find_stuck(held, _runs(held))
    _note_failed(held, run)
    if is_first and sum(member.in_flight for _, member in held) == 1:
        consumer.stuck_at = NOT_STUCK  # nothing was delivered after it


def has_failed(run: Run, ordinal: int) -> bool:
    """Return True if the delivery of this message has failed. Losses and timeouts in the run were noted before."""
    return ordinal < run.reached or run.order < run.owner.answered


def _held(in_flight: InFlight, consumer: Consumer) -> Held:
    return [(in_flight, consumer)] if consumer.window is None else consumer.window.in_flight()


def _runs(held: Held) -> list[Run]:
    return [run for in_flight, member in held for run in in_flight.runs_of(member)]


def _age(run: Run) -> tuple[int, int, int]:
    return run.delivered, run.order, run.oldest()


def _is_stuck(held: Held) -> bool:
    """Return True if the client has answered nothing since it was found to be stuck."""
    return all(member.stuck_at != NOT_STUCK for _, member in held)


def _find_stuck(held: Held, runs: list[Run]) -> None:
    """Note that the client is stuck at its oldest message in flight."""
    oldest = min(runs, key=_age)
    for _, member in held:
        member.stuck_at = STUCK_ELSEWHERE
    oldest.owner.stuck_at = oldest.oldest()


def _note_failed(held: Held, run: Run) -> None:
    owner: DeliveryOwner = run.owner
    if run.oldest() == owner.stuck_at:
        run.reached = max(run.reached, run.oldest() + 1)
    if len(held) > 1 and run.delivered < max(member.answered_at for _, member in held):
        run.reached = _ALL
