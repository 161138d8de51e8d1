"""Publish a chunk of messages at one node, so that a repetition publishes nothing twice within nsqd's -dedup-window."""

from __future__ import annotations

import hashlib
import time

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.chunks import Chunk

_TRIES, _PAUSE = 5, 1.0  # tries to publish a chunk at its node, and s between them


def publish(asker: Asker, address: str, chunk: Chunk, channel: str, name: str) -> int:
    """Publish a chunk and return how many of its messages nsqd knew already.

    `channel`: the only one that gets the messages; "": all of the topic. `name` distinguishes the chunk from others with the
    same content; a chunk with a key is published under that instead. Raises Refused, Unreachable; ValueError for a header
    that HTTP cannot have.
    """
    payload, (headers, key) = chunk.payload(), chunk.label
    digest = hashlib.blake2b(payload + repr(headers).encode(), digest_size=12, key=channel.encode()[:64]).hexdigest()
    arguments = {"topic": chunk.topic, "binary": "true", "key": key or f"{name}/{digest}"}
    if channel:
        arguments["channel"] = channel
    fields = {f"X-Nsq-Header-{header}": value for header, value in headers}
    for left in reversed(range(_TRIES)):
        try:
            _, received = asker.post(address, "/mpub", arguments, payload, fields)
        except Unreachable:
            if not left:
                raise
        except Refused as refused:
            if refused.status < 500 or not left:
                raise
        else:
            return int(received.get("x-nsq-duplicates", 0))
        time.sleep(_PAUSE)
    raise AssertionError("the last try returns or raises")
