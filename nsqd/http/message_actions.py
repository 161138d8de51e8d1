"""Act on single messages of a channel, in whatever state they are.

    POST /channel/messages/finish?topic=t&channel=c&offset=7,9       finish them; more than one needs the right to delete
    POST /channel/messages/requeue?...[&delay=MS]                    make them ready again, after a delay if one is given
    POST /channel/messages/kick?...                                  make them ready as if they had never been delivered
    POST /channel/messages/bury?...[&reason=TEXT]                    deliver none of them until kicked or finished
    POST /channel/messages/move?...[&to=TOPIC]                       publish them to another topic, and finish them here

Headers move with a message, a key or a sequence does not. Without `to` each dead letter goes back to the topic that it comes
from, as its headers say (a redrive), if that topic exists; other messages are not moved. That needs the right to publish to all
topics. In a topic from which it once came a message begins afresh: the headers of a dead letter do not go there.

Offsets are those in the answers of /channel/messages. Instead of `offset`, `state=S&count=N` takes the first N in that state.
The answer is {"finished": N} (requeued, kicked, buried, moved): how many of them the channel had, once that is as durable as
the topic promises. A consumer that has such a message in flight loses it: its FIN will fail. Other clients are served between
parts of a request; if a target takes no more meanwhile, the answer has the number of those that it took. The answer is 413
TOO_MUCH_AT_ONCE if more than 64 MiB of messages had to be read from disk for the request; a client then names fewer. Messages
that wait for their copies on other nodes are not moved.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.channel import actions
from nsqd.core.channel.actions import ChosenMessage
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.dead_letters import dead_letter_sources, without_dead_letter
from nsqd.core.channel.listing import MessageState, Steps, list_messages
from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.message.frame import HEADER_SIZE, message_id
from nsqd.core.topic import Topic
from nsqd.http.arguments import TOPIC_AND_CHANNEL, topic_to_publish_to
from nsqd.http.inspection import FrameLookup
from nsqd.http.messages import STATES
from nsqd.http.node import Node
from nsqd.http.parts import ordinals_in, parts_of_channel
from shared.auth.verbs import Verb
from shared.http.api import json_response
from shared.http.argument import bounded, choice, legal_name, listed, number, short_text
from shared.http.errors import HttpError
from shared.http.route import Need, Route, on_channel
from shared.values import MILLISECOND

MOST = 1000  # messages in a request
AT_ONCE, BYTES_AT_ONCE = 100, 1024 * 1024  # messages in a turn: 2 ms
MOST_REASON = 200  # characters
BY_HAND = "by hand"  # the reason for burying a message, unless the request gives one
Act = Callable[[Topic, Channel, list[ChosenMessage], FrameLookup], int]
CHOICE = (  # of messages: `offset`, or `state` and `count`
    *TOPIC_AND_CHANNEL,
    listed("offset", number, MOST, "offsets"),
    choice("state", STATES, None),
    bounded("count", MOST, 0),
)


class MessageActions:
    """The five routes that act on messages."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("POST /channel/messages/finish", self._handler("finished", self._finish),
                  Need(Verb.ACT, "topic", "channel", finishing="offset"), CHOICE,
                  "Finish the messages at some offsets, or the first `count` in a state"),
            Route("POST /channel/messages/requeue", self._handler("requeued", self._requeue), on_channel(Verb.ACT),
                  (*CHOICE, bounded("delay", self._node.options.max_req_timeout // MILLISECOND, 0)),
                  "Requeue them; `delay` in ms"),
            Route("POST /channel/messages/kick", self._handler("kicked", self._kick), on_channel(Verb.ACT), CHOICE,
                  "Make them ready, with attempts from 1"),
            Route("POST /channel/messages/bury", self._handler("buried", self._bury), on_channel(Verb.ACT),
                  (*CHOICE, short_text("reason", MOST_REASON, BY_HAND)), "Bury them"),
            Route("POST /channel/messages/move", self._handler("moved", self._move),
                  Need(Verb.ACT, "topic", "channel", target="to"), (*CHOICE, legal_name("to", "")),
                  "Publish them to another topic, or dead letters to the topic that they come from, and finish them here"),
        ]  # fmt: skip

    def _handler(self, done: str, prepare: Callable[..., Act]) -> Callable[..., Awaitable[Response]]:
        """Return a handler that reads the messages that are chosen, and then acts on them.

        `done` is the key of the answer; `prepare` makes the action from the request and the other arguments.
        """

        async def handler(
            request: Request,
            topic: str,
            channel: str,
            offset: list[int],
            state: MessageState | None,
            count: int,
            **more: Any,
        ) -> Response:
            act = prepare(request, **more)
            choose, most = _choice(offset, state, count)

            def parts() -> list[tuple[Topic, Channel]]:
                return parts_of_channel(self._node.broker, topic, channel)

            left = most
            for place in await self._node.bridge.call(lambda: [one.context.position for one, _ in parts()]):
                left -= await self._act_in(parts, place, act, choose, left)
            return json_response({done: most - left})

        return handler

    async def _act_in(
        self,
        parts: Callable[[], list[tuple[Topic, Channel]]],
        place: int,
        act: Act,
        choose: Callable[[Topic, Channel], Steps[list[int]]],
        most: int,
    ) -> int:
        """Read at most `most` chosen messages of the log at that place, and act on them, some in each turn.

        Returns how many the channel had. Raises HttpError if that is refused before any of them.
        """
        look = FrameLookup(self._node)

        def chosen_here() -> Steps[tuple[Topic, list[int]]]:
            topic, channel = _at(parts(), place)
            return topic, (yield from choose(topic, channel))[:most]

        await look.fetch(chosen_here)
        chosen = [ChosenMessage(ordinal, message_id(frame)) for ordinal, frame in look.frames.items() if frame]

        def steps() -> Iterator[int]:
            done = 0
            for part in _in_turns(chosen, look):
                try:
                    done += (count := act(*_at(parts(), place), part, look))
                except HttpError:
                    if done:
                        return  # the answer has the number until then, and the next request the error
                    raise
                yield count

        return sum(await self._node.bridge.call_each(steps()))

    @staticmethod
    def _finish(request: Request) -> Act:
        return lambda topic, channel, chosen, look: actions.finish(topic.distribution, channel, chosen)

    def _requeue(self, request: Request, delay: int) -> Act:
        broker = self._node.broker
        return lambda topic, channel, chosen, look: actions.requeue(
            topic.distribution, channel, chosen, broker.now + delay * MILLISECOND if delay else 0, broker.now
        )

    def _kick(self, request: Request) -> Act:
        broker = self._node.broker
        return lambda topic, channel, chosen, look: actions.requeue(
            topic.distribution, channel, chosen, 0, broker.now, afresh=True
        )

    @staticmethod
    def _bury(request: Request, reason: str) -> Act:
        return lambda topic, channel, chosen, look: actions.bury(topic.distribution, channel, chosen, reason)

    def _move(self, request: Request, to: str) -> Act:
        def move(source: Topic, channel: Channel, chosen: list[ChosenMessage], look: FrameLookup) -> int:
            names = self._targets(chosen, look, to)
            if not names:
                return 0
            topics = {name: topic_to_publish_to(self._node, request, name) for name in set(names.values())}

            def publish(ordinals: list[int]) -> None:
                for name, topic in topics.items():
                    self._publish(topic, [ordinal for ordinal in ordinals if names[ordinal] == name], look)

            return actions.move(source.distribution, channel, [one for one in chosen if one.ordinal in names], publish)

        return move

    def _targets(self, chosen: list[ChosenMessage], look: FrameLookup, to: str) -> dict[int, str]:
        """Return the topics to which messages are to be moved, by ordinal. `to`: all of them; "": where each comes from."""
        copied = [message.ordinal for message in chosen if not look.is_held(message.ordinal)]
        if to:
            return dict.fromkeys(copied, to)
        sources = {one: dead_letter_sources(look.attributes.get(one, NONE).headers) for one in copied}
        return {one: of[-1] for one, of in sources.items() if of and of[-1] in self._node.broker.topics}

    def _publish(self, topic: Topic, ordinals: list[int], look: FrameLookup) -> None:
        """Publish the messages in their order, and seal them here (see actions.move)."""
        for ordinal in ordinals:
            body = look.frames[ordinal][HEADER_SIZE:]
            headers = look.attributes.get(ordinal, NONE).headers
            if topic.name in dead_letter_sources(headers):
                headers = without_dead_letter(headers)
            if headers:
                topic.seal(self._node.broker.wall)  # those before it that have none
                topic.intake.publish_with([body], Attributes(headers))
                topic.seal(self._node.broker.wall)
            else:
                topic.publish([body], len(body))
        topic.seal(self._node.broker.wall)


def _in_turns(chosen: list[ChosenMessage], look: FrameLookup) -> Iterator[list[ChosenMessage]]:
    """Yield the messages in lists for one turn each: of AT_ONCE messages at most, and about BYTES_AT_ONCE bytes."""
    part, size = list[ChosenMessage](), 0
    for one in chosen:
        part.append(one)
        size += len(look.frames[one.ordinal])
        if len(part) == AT_ONCE or size >= BYTES_AT_ONCE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _at(parts: list[tuple[Topic, Channel]], place: int) -> tuple[Topic, Channel]:
    """Return the part in the log at that place. Raises HttpError 404 if the node has given the log up."""
    for part in parts:
        if part[0].context.position == place:
            return part
    raise HttpError(404, "CHANNEL_NOT_FOUND")


def _choice(
    offsets: list[int], state: MessageState | None, count: int
) -> tuple[Callable[[Topic, Channel], Steps[list[int]]], int]:
    """Return a function that chooses ordinals of a channel, and how many at most. Raises HttpError 400."""
    if not offsets and state is None:
        raise HttpError(400, "MISSING_ARG_OFFSET")
    if not offsets and not count:
        raise HttpError(400, "MISSING_ARG_COUNT")

    def choose(topic: Topic, channel: Channel) -> Steps[list[int]]:
        if offsets or state is None:
            return ordinals_in(topic, offsets)
        listed, _ = yield from list_messages(channel, state, "", count)
        return [one.ordinal for one in listed]

    return choose, MOST if offsets else count
