"""pynsq behind the two commands of contract.py."""

import json
import sys

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
        deliveries.append({"body": body, "attempts": message.attempts})
        message.enable_async()
        if body.startswith("requeue") and message.attempts == 1:
            message.requeue(delay=0, backoff=False)
        elif body.startswith("touch"):
            loop.call_later(0.7, message.touch)
            loop.call_later(1.4, finish, message)
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
        msg_timeout=1,  # s here
    )
    loop.start()
    print(json.dumps(deliveries))


{"publish": publish, "consume": consume}[sys.argv[1]](*sys.argv[2:])
