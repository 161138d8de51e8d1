"""Notes for a failing simulator run: the traces of the messages that its error names."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from nsqd.core.message.frame import HEADER_SIZE, ID_SIZE
from nsqd.core.trace import Trace, trace_of

MOST = 5  # messages whose trace is added
_BODY = re.compile(r"b'([^']*)'|b\"([^\"]*)\"")
_ID = re.compile(r"\b[0-9a-f]{16}\b")


class BodyTrace(Trace):
    """A Trace that knows the id of each message by its body: with equal bodies, that of the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: dict[bytes, bytes] = {}

    def add_publish(self, topic: int, where: str, text: str, first: int, frames: list[bytes], ids: bytes) -> None:
        for index, frame in enumerate(frames):
            self.ids[frame[HEADER_SIZE:]] = ids[index * ID_SIZE : (index + 1) * ID_SIZE]
        super().add_publish(topic, where, text, first, frames, ids)


@contextmanager
def traced_errors(trace: BodyTrace) -> Iterator[None]:
    """An AssertionError in here gets the traces of the messages that it names, by body or id, as a note."""
    try:
        yield
    except AssertionError as error:
        text, events = str(error), trace.events()
        bodies = [(found[0] or found[1]).encode() for found in _BODY.findall(text)]
        named = {body.decode(): trace.ids.get(body, b"?") for body in bodies}
        named |= {name: name.encode() for name in _ID.findall(text)}
        for name, message_id in list(named.items())[:MOST]:
            error.add_note("\n".join([f"The trace of {name}:", *trace_of(events, message_id)]))
        raise
