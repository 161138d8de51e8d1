"""gnsq behind the two commands of contract.py."""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402
import sys  # noqa: E402

import gevent  # noqa: E402
import gnsq  # noqa: E402


def publish(topic, address, bodies, delay_ms="0"):
    producer = gnsq.Producer(address)
    producer.start()
    bodies = [body.encode() for body in json.loads(bodies)]
    if len(bodies) > 1:
        producer.multipublish(topic, bodies)
    else:
        producer.publish(topic, bodies[0], defer=int(delay_ms) or None)
    producer.close()
    producer.join()


def consume(options):
    options = json.loads(options)
    deliveries, finished = [], []
    consumer = gnsq.Consumer(
        options["topic"],
        options["channel"],
        nsqd_tcp_addresses=options.get("nsqd", []),
        lookupd_http_addresses=options.get("lookupd", []),
        max_in_flight=10,
        max_backoff_duration=0,
    )

    def finish(message):
        message.finish()
        finished.append(message.id)
        if len(finished) == options["count"]:
            gevent.spawn_later(0.05, consumer.close)

    @consumer.on_message.connect
    def handle(consumer, message):
        body = message.body.decode()
        deliveries.append({"body": body, "attempts": message.attempts})
        message.enable_async()
        if body.startswith("requeue") and message.attempts == 1:
            message.requeue()
        elif body.startswith("touch"):
            gevent.spawn_later(0.7, message.touch)
            gevent.spawn_later(1.4, finish, message)
        elif not body.startswith("stall") or message.attempts > 1:
            finish(message)

    consumer.start()
    print(json.dumps(deliveries))


{"publish": publish, "consume": consume}[sys.argv[1]](*sys.argv[2:])
