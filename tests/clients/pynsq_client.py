"""pynsq behind the commands of contract.py and upgrades.py."""

import base64
import hashlib
import json
import select
import ssl
import sys
import time

import nsq
from tornado.ioloop import IOLoop


def publish(topic, address, bodies, delay_ms="0"):
    loop = IOLoop.current()
    writer = nsq.Writer([address])
    bodies = [body.encode() for body in json.loads(bodies)]
    answers = []

    def answered(connection, data):
        answers.append(data)
        loop.stop()

    def send():
        if not writer.conns:  # connecting is asynchronous and nothing tells when it is done
            loop.call_later(0.01, send)
        elif len(bodies) > 1:
            writer.mpub(topic, bodies, callback=answered)
        elif int(delay_ms):
            writer.dpub(topic, int(delay_ms), bodies[0], callback=answered)
        else:
            writer.pub(topic, bodies[0], callback=answered)

    loop.add_callback(send)
    loop.start()
    assert answers == [b"OK"], answers


def keep_publishing(options):
    """Publish numbers until standard input ends, each until it is acknowledged; print those that were sent once and again."""
    options = json.loads(options)
    loop = IOLoop.current()
    writer = nsq.Writer(options["nsqd"], reconnect_interval=1)
    acknowledged, again = [], []

    def answered(connection, data):
        number = str(len(acknowledged))
        if isinstance(data, nsq.Error):
            if connection is not None:  # None: there was no connection, and nothing was sent
                again.append(number)
        else:
            acknowledged.append(number)
        loop.call_later(0.01, send)

    def send():
        if select.select([sys.stdin], [], [], 0)[0]:
            loop.stop()
        else:
            writer.pub(options["topic"], b"%d" % len(acknowledged), callback=answered)

    loop.call_later(0.1, send)
    loop.start()
    print(json.dumps({"acknowledged": acknowledged, "again": again}))


def consume(options):
    options = json.loads(options)
    loop = IOLoop.current()
    deliveries, finished = [], []

    def finish(message):
        message.finish()
        finished.append(message.id)
        if len(finished) == options["count"]:
            loop.call_later(0.05, loop.stop)

    def handle(message):
        body = message.body.decode()
        deliveries.append({"body": body, "attempts": message.attempts, "at": time.monotonic()})
        message.enable_async()
        if body.startswith("requeue") and message.attempts == 1:
            message.requeue(delay=0, backoff=False)
        elif body.startswith("touch"):
            for number in range(1, 17):
                loop.call_later(0.25 * number, message.touch)
            loop.call_later(4.25, finish, message)
        elif not body.startswith("stall") or message.attempts > 1:
            finish(message)

    nsq.Reader(
        topic=options["topic"],
        channel=options["channel"],
        message_handler=handle,
        nsqd_tcp_addresses=options.get("nsqd", []),
        lookupd_http_addresses=[f"http://{address}" for address in options.get("lookupd", [])],
        lookupd_poll_interval=1,
        lookupd_poll_jitter=0.0,
        max_in_flight=10,
        msg_timeout=3,  # s here
    )
    loop.start()
    print(json.dumps(deliveries))


def exchange(options):
    options = json.loads(options)
    bodies = [base64.b64decode(body) for body in json.loads(sys.stdin.readline())]
    upgrades = dict.fromkeys(options["upgrades"], True) | {"auth_secret": options["secret"]}
    if "tls_v1" in upgrades:
        upgrades["tls_options"] = {"ca_certs": options["ca"], "cert_reqs": ssl.CERT_REQUIRED}
    loop, topic, digests = IOLoop.current(), options["topic"], []

    def handle(message):
        digests.append(hashlib.sha256(message.body).hexdigest())
        if len(digests) == len(bodies):
            print(json.dumps(digests), flush=True)
            sys.stdin.read()
            loop.call_later(0.05, loop.stop)
        return True

    def read(connection, data):
        assert data == b"OK", data
        nsq.Reader(topic, "channel", handle, nsqd_tcp_addresses=[options["nsqd"]], max_in_flight=100, **upgrades)

    def answered(connection, data):
        assert data == b"OK", data

    def send():
        if not writer.conns:  # connecting is asynchronous and nothing tells when it is done
            loop.call_later(0.01, send)
            return
        for body in bodies[:2]:
            writer.pub(topic, body, callback=answered)
        writer.mpub(topic, bodies[2:], callback=read)

    writer = nsq.Writer([options["nsqd"]], **upgrades)
    loop.add_callback(send)
    loop.start()


commands = {"publish": publish, "keep-publishing": keep_publishing, "consume": consume, "exchange": exchange}
commands[sys.argv[1]](*sys.argv[2:])
