"""The commands of consumers: RDY, FIN, REQ and TOUCH. A command that names messages returns why it failed.

The actions of operators are in actions.py; channel.py has the calls from the topic and the clock.
"""

from collections.abc import Callable

from nsqd.core.channel import failures
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer
from nsqd.core.channel.inflight import NOT_IN_FLIGHT, NOT_OWNER, Run, split_ids
from nsqd.core.channel.window import ShardedWindow, window_of
from nsqd.core.measurement.outcomes import REQUEUED
from nsqd.core.message.frame import ID_SIZE
from nsqd.core.timing.deferred import Message


def set_ready(channel: Channel, consumer: Consumer, count: int) -> None:
    """Carry out RDY: set the window of the consumer to `count` messages in flight."""
    consumer.ready = count
    if consumer.window is not None:
        consumer.window.rdy = count
    channel.refresh(consumer)
    if consumer.ready <= consumer.in_flight:
        consumer.sink.flush()


def finish(channel: Channel, consumer: Consumer, ids: bytes, alone: bool = False) -> list[tuple[bytes, str]]:
    """Carry out FIN for all `ids` (16 bytes each, end to end). Return (id, reason) of those that failed, in order.

    `alone`: the messages are looked for in this channel only, and not in its shards.
    """
    if consumer.window is not None and not alone:
        return _finish_in_shards(window_of(consumer), ids)
    failed: list[tuple[bytes, str]] = []
    in_flight, position, total = channel.in_flight, 0, len(ids)
    while position < total:
        if channel.backlog.is_grouped and (found := in_flight.take_from_batch(consumer, ids, position)) is not None:
            _finish_batch(channel, consumer, *found)
            position += found[2] * ID_SIZE
            continue
        taken = in_flight.take_next(consumer, ids, position)
        if taken is None:
            message_id = ids[position : position + ID_SIZE]
            failed.append((message_id, in_flight.why_not(message_id)))
            position += ID_SIZE
            continue
        run, first, batch = taken
        count = len(batch) // ID_SIZE
        channel.journal.finish(first, count)
        if channel.backlog.is_grouped:
            groups = run.groups_of(first, count) if run.groups else ()
            channel.ended(range(first, first + count), groups)
            if groups and not len(run):
                run.groups = ()  # InFlight may hold the run for a while
        if channel.measures is not None:
            channel.measures.finished(first, batch, run.attempts, run.published(first, count))
            if not len(run):
                run.stamps = b""  # InFlight may hold the run for a while
        consumer.finish_count += count
        position += len(batch)
    if consumer not in channel.dispatch.ready or channel.throttle is not None:
        channel.refresh(consumer)
    return failed


def _finish_batch(channel: Channel, consumer: Consumer, run: Run, index: int, count: int) -> None:
    """Finish `count` messages from an index on that were taken out of a batch."""
    end = index + count
    ordinals = run.batch[index:end]
    if isinstance(ordinals, range):
        channel.journal.finish(ordinals[0], count)
    else:
        channel.journal.finish_each(ordinals)
    channel.ended(ordinals, run.groups[index:end])
    if channel.measures is not None:
        ids = run.ids[index * ID_SIZE : end * ID_SIZE]
        for ordinal, name in zip(ordinals, split_ids(ids), strict=True):
            channel.measures.finished(ordinal, name, run.attempts, run.published(ordinal, 1))
    consumer.finish_count += count


def _finish_in_shards(window: ShardedWindow, ids: bytes) -> list[tuple[bytes, str]]:
    """Carry out FIN for messages of a channel or its shards. See `finish`."""
    failed: list[tuple[bytes, str]] = []
    while ids:
        size = _of_one_node(ids) if len(ids) > ID_SIZE else ID_SIZE
        batch, ids = ids[:size], ids[size:]
        likely = window.likely_holder(batch)
        missed = finish(likely, window.members[likely], batch, True)
        if missed:
            failed += _finish_elsewhere(window, likely, missed)
    return failed


def _finish_elsewhere(
    window: ShardedWindow, likely: Channel, missed: list[tuple[bytes, str]]
) -> list[tuple[bytes, str]]:
    """Carry out FIN for messages that the channel `likely` does not have in flight. Return those that no other one has."""
    reasons = dict(missed)
    for channel, consumer in window.holders():
        if channel is likely or not missed:
            continue
        batch = b"".join([one for one, _ in missed])
        missed = finish(channel, consumer, batch, True)
        if len(missed) * ID_SIZE < len(batch):
            window.note_route(batch, channel)
        reasons |= {one: why for one, why in missed if reasons.get(one) != NOT_OWNER}
    return [(one, reasons[one]) for one, _ in missed]


def _of_one_node(ids: bytes) -> int:
    """Return the size of the first of `ids` (16 bytes each) that are those of one node: shards seldom share one.

    It looks at the last three of NODE_DIGITS: the first one is the same for all numbers of nodes.
    """
    column = ids[3::ID_SIZE]
    size = (len(column) - len(column.lstrip(column[:1]))) * ID_SIZE
    column = ids[2:size:ID_SIZE]
    size = (len(column) - len(column.lstrip(column[:1]))) * ID_SIZE
    column = ids[1:size:ID_SIZE]
    return (len(column) - len(column.lstrip(column[:1]))) * ID_SIZE


def _in_shards(
    channel: Channel, consumer: Consumer, message_id: bytes, command: Callable[[Channel, Consumer], str]
) -> str:
    """Carry out a command for a message that the channel itself does not have in flight. Return why it failed, or ""."""
    reasons = [channel.in_flight.why_not(message_id)]
    is_local = consumer.window is not None and consumer is consumer.window.local
    for shard, member in window_of(consumer).holders()[1:] if is_local else ():
        reasons.append(command(shard, member))
        if not reasons[-1]:
            return ""
    return NOT_OWNER if NOT_OWNER in reasons else NOT_IN_FLIGHT


def requeue(channel: Channel, consumer: Consumer, message_id: bytes, delay: int, now: int) -> str:
    """Carry out REQ: make a message ready after `delay` ns, or bury it if it is given up. Return why it failed, or ""."""
    found = channel.in_flight.take_answered(consumer, message_id)
    if found is None:
        return _in_shards(channel, consumer, message_id, lambda c, m: requeue(c, m, message_id, delay, now))
    attempts, ordinal = found[0].attempts, found[1]
    channel.keep_heads(found[0], (ordinal,))
    message = Message(ordinal, attempts, found[0].failures + 1)
    consumer.requeue_count += 1
    channel.requeue_count += 1
    channel.count_outcome(REQUEUED, ordinal, message_id, attempts)
    channel.fail(message_id, message, failures.REQUEUED, now, delay)
    channel.refresh(consumer)
    return ""


def touch(channel: Channel, consumer: Consumer, message_id: bytes, timeout: int, longest: int, now: int) -> str:
    """Carry out TOUCH: extend the deadline of a message to `timeout` from now, but at most `longest` after its delivery (ns).

    Return the reason why it failed, or "".
    """
    found = channel.in_flight.take_answered(consumer, message_id)
    if found is None:
        return _in_shards(channel, consumer, message_id, lambda c, m: touch(c, m, message_id, timeout, longest, now))
    run, ordinal = found
    deadline = min(now + timeout, run.delivered + longest)
    channel.in_flight.hold_on(run, ordinal, message_id, deadline)
    channel.schedule_scan(deadline)
    return ""
