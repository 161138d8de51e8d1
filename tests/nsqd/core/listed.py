"""A page of messages that is listed at once."""

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.listing import MessageState, Page, Steps, T, list_messages


def result_of(steps: Steps[T]) -> T:
    """Return the result of steps, none of which is interrupted."""

    def run() -> Steps[None]:
        results.append((yield from steps))

    results: list[T] = []
    list(run())
    return results[0]


def listed(channel: Channel, state: MessageState, after: str, limit: int) -> Page:
    return result_of(list_messages(channel, state, after, limit))
