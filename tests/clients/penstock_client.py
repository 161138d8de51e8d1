"""Penstock's own clients behind the command of upgrades.py, and for failovers behind "consume" of contract.py."""

import base64
import hashlib
import json
import sys
import time

import anyio

from penstock import aio
from penstock.client import Consumer, Producer, Settings

NEVER = Settings(lookupd_poll_interval_s=3600)  # who finds another node did not just wait for the next poll


class Handler:
    """Finishes messages, and those that stall when they come again: the first delivery as well, whose node is gone."""

    def __init__(self, count):
        self.deliveries = []
        self._left = count
        self._stalled = []

    def handle(self, message):
        """Return True when all messages are finished."""
        body = message.body.decode()
        self.deliveries.append({"body": body, "attempts": message.attempts, "at": time.monotonic()})
        if body.startswith("stall") and not any(one.body == message.body for one in self._stalled):
            self._stalled.append(message)
            return False
        for late in [one for one in self._stalled if one.body == message.body]:
            late.touch()
            late.finish()
        message.finish()
        self._left -= 1
        return not self._left


def consume(options):
    options = json.loads(options)
    handler = Handler(options["count"])
    where = options.get("nsqd", []), options.get("lookupd", [])
    with Consumer(options["topic"], options["channel"], *where, max_in_flight=10, settings=NEVER) as consumer:
        for message in consumer:
            if handler.handle(message):
                break
    print(json.dumps(handler.deliveries))


async def consume_async(options):
    handler = Handler(options["count"])
    where = options.get("nsqd", []), options.get("lookupd", [])
    async with aio.Consumer(options["topic"], options["channel"], *where, max_in_flight=10, settings=NEVER) as consumer:
        async for message in consumer:
            if handler.handle(message):
                break
    print(json.dumps(handler.deliveries))


def exchange(options):
    options = json.loads(options)
    bodies = [base64.b64decode(body) for body in json.loads(sys.stdin.readline())]
    upgrades, secret = dict.fromkeys(options["upgrades"], True), options["secret"] or ""
    settings = Settings(tls_root_ca_file=options["ca"], auth_secret=secret, **upgrades)
    topic, digests = options["topic"], []
    with Producer(options["nsqd"], settings) as producer:
        producer.connect()
        for body in bodies[:2]:
            producer.publish(topic, body)
        producer.publish_many(topic, bodies[2:])
        with Consumer(topic, "channel", [options["nsqd"]], max_in_flight=100, settings=settings) as consumer:
            while len(digests) < len(bodies):
                for message in consumer.poll():
                    digests.append(hashlib.sha256(message.body).hexdigest())
                    message.finish()
            print(json.dumps(digests), flush=True)
            sys.stdin.read()


def consume_aio(options):
    anyio.run(consume_async, json.loads(options))


{"exchange": exchange, "consume": consume, "consume-aio": consume_aio}[sys.argv[1]](*sys.argv[2:])
