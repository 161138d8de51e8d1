"""The rule by which a delivery has failed in the hands of a consumer: a message is buried after too many failures.

A consumer is given messages ahead of its work, as many as its window holds. So it matters which of them it had in its hands:
* a message that it requeues has failed, always (commands.py);
* a message that times out, or whose consumer loses its connection, has failed if the consumer had touched it, or had answered
  (finished, requeued or touched) a message that was delivered later, or if it was the consumer's oldest in flight.
All others lay behind in the window: they come back with their attempts, and without a failure.

The oldest message keeps a consumer silent: it is *stuck at* it. Until the consumer answers again, nothing else fails there,
however often its window is emptied by timeouts and filled again. So a window that times out bit by bit counts once. A consumer
that has a single message in flight is never stuck: each message fails by itself.

With shards (window.py), all messages of a client count as one window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.core.channel.inflight import NOT_STUCK, DeliveryOwner, Run

if TYPE_CHECKING:
    from nsqd.core.channel.channel import Channel
    from nsqd.core.channel.consumer import Consumer

ELSEWHERE = -2  # in place of an ordinal: the consumer is stuck at a message of another channel of its window
_ALL = 1 << 63  # above every ordinal

# why messages come back, as the reasons of burials
REQUEUED, TIMED_OUT, LOST = "requeued", "timed out", "connection lost"
LOWERED = "max_attempts was lowered"  # a message that had failed so often before


def note_lost(channel: Channel, consumer: Consumer) -> None:
    """Note which messages of the channel and its shards have failed, for the consumer is leaving. None was taken out yet."""
    held = _held(channel, consumer)
    runs = _runs(held)
    if not runs:
        return
    if not _is_stuck(held):
        _find_stuck(held, runs)
    for run in runs:
        _note_failed(held, run)


def note_timed_out(channel: Channel, consumer: Consumer, run: Run) -> None:
    """Note which messages of a run that is due, and that is still in flight, have failed."""
    held = _held(channel, consumer)
    is_first = not _is_stuck(held)
    if is_first:
        _find_stuck(held, _runs(held))
    _note_failed(held, run)
    if is_first and sum(member.in_flight for _, member in held) == 1:
        consumer.stuck_at = NOT_STUCK  # nothing lies behind it


def has_failed(run: Run, ordinal: int) -> bool:
    """Return True if the delivery of this message has failed. What was lost or timed out in the run was noted before."""
    return ordinal < run.reached or run.order < run.owner.answered


def _held(channel: Channel, consumer: Consumer) -> list[tuple[Channel, Consumer]]:
    return [(channel, consumer)] if consumer.window is None else consumer.window.holders()


def _runs(held: list[tuple[Channel, Consumer]]) -> list[Run]:
    return [run for channel, member in held for run in channel.in_flight.runs_of(member)]


def _age(run: Run) -> tuple[int, int, int]:
    return run.delivered, run.order, run.oldest()


def _is_stuck(held: list[tuple[Channel, Consumer]]) -> bool:
    """Return True if the client has answered nothing since it was found to be stuck."""
    return all(member.stuck_at != NOT_STUCK for _, member in held)


def _find_stuck(held: list[tuple[Channel, Consumer]], runs: list[Run]) -> None:
    """Note that the client is stuck at its oldest message in flight."""
    oldest = min(runs, key=_age)
    for _, member in held:
        member.stuck_at = ELSEWHERE
    oldest.owner.stuck_at = oldest.oldest()


def _note_failed(held: list[tuple[Channel, Consumer]], run: Run) -> None:
    owner: DeliveryOwner = run.owner
    if run.oldest() == owner.stuck_at:
        run.reached = max(run.reached, run.oldest() + 1)
    if len(held) > 1 and run.delivered < max(member.answered_at for _, member in held):
        run.reached = _ALL
