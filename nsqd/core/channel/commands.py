"""The commands of consumers: RDY, FIN, REQ and TOUCH. A command that names messages returns why it failed.

The actions of operators are in actions.py; channel.py has the calls from the topic and the clock.
"""

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.measurement.outcomes import REQUEUED
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.timing.deferred import Message


def set_ready(channel: Channel, consumer: Consumer, count: int) -> None:
    """Carry out RDY: set the window of the consumer to `count` messages in flight."""
    consumer.ready = count
    channel.refresh(consumer)
    if count <= consumer.in_flight:
        consumer.sink.flush()


def finish(channel: Channel, consumer: Consumer, ids: bytes) -> list[tuple[bytes, str]]:
    """Carry out FIN for all `ids` (16 bytes each, end to end). Return (id, reason) of those that failed, in order."""
    failed: list[tuple[bytes, str]] = []
    in_flight, position, total = channel.in_flight, 0, len(ids)
    while position < total:
        taken = in_flight.take_next(consumer, ids, position)
        if taken is None:
            message_id = ids[position : position + ID_SIZE]
            failed.append((message_id, in_flight.why_not(message_id)))
            position += ID_SIZE
            continue
        run, first, some = taken
        count = len(some) // ID_SIZE
        channel.journal.finish(first, count)
        if channel.measures is not None:
            channel.measures.finished(first, some, run.attempts, run.published(first, count))
            if not len(run):
                run.stamps = b""  # InFlight may hold the run for a while
        consumer.finish_count += count
        position += len(some)
    if consumer not in channel.dispatch.ready:
        channel.refresh(consumer)
    return failed


def requeue(channel: Channel, consumer: Consumer, message_id: bytes, delay: int, now: int) -> str:
    """Carry out REQ: make a message ready after `delay` ns, or bury it if it is given up. Return why it failed, or ""."""
    found = channel.in_flight.take_out(consumer, message_id)
    if found is None:
        return channel.in_flight.why_not(message_id)
    attempts, ordinal = found[0].attempts, found[1]
    consumer.requeue_count += 1
    channel.requeue_count += 1
    channel.count_outcome(REQUEUED, ordinal, message_id, attempts)
    if channel.is_given_up(attempts):
        channel.bury(message_id, ordinal, attempts, "requeued")
    else:
        due = now + delay if delay else 0
        channel.journal.requeue(ordinal, attempts, due)
        channel.wait(Message(ordinal, attempts), due, now)
    channel.refresh(consumer)
    return ""


def touch(channel: Channel, consumer: Consumer, message_id: bytes, timeout: int, longest: int, now: int) -> str:
    """Carry out TOUCH: extend the deadline of a message to `timeout` from now, but at most `longest` after its delivery (ns).

    Return why it failed, or "".
    """
    found = channel.in_flight.take_out(consumer, message_id)
    if found is None:
        return channel.in_flight.why_not(message_id)
    run, ordinal = found
    deadline = min(now + timeout, run.delivered + longest)
    stamps = run.stamp(ordinal)
    channel.in_flight.hold_single(consumer, ordinal, message_id, run.attempts, run.delivered, deadline, stamps)
    channel.schedule_scan(deadline)
    return ""
