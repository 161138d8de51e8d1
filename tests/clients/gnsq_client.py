"""gnsq behind the commands of contract.py and upgrades.py."""

from gevent import monkey

monkey.patch_all()

import base64  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import select  # noqa: E402
import ssl  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

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


def keep_publishing(options):
    """Publish numbers until standard input ends, each until it is acknowledged; print those that were sent once and again."""
    options = json.loads(options)
    acknowledged, again, number = [], [], 0
    producer = gnsq.Producer(options["nsqd"], max_backoff_duration=1)
    producer.start()
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        try:
            producer.publish(options["topic"], b"%d" % number)
        except gnsq.errors.NSQException:
            again.append(str(number))
            continue
        acknowledged.append(str(number))
        number += 1
    print(json.dumps({"acknowledged": acknowledged, "again": again}))


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
        deliveries.append({"body": body, "attempts": message.attempts, "at": time.monotonic()})
        message.enable_async()
        if body.startswith("requeue") and message.attempts == 1:
            message.requeue()
        elif body.startswith("touch"):
            for number in range(1, 17):
                gevent.spawn_later(0.25 * number, message.touch)
            gevent.spawn_later(4.25, finish, message)
        elif not body.startswith("stall") or message.attempts > 1:
            finish(message)

    consumer.start()
    print(json.dumps(deliveries))


def exchange(options):
    options = json.loads(options)
    bodies = [base64.b64decode(body) for body in json.loads(sys.stdin.readline())]
    upgrades = dict.fromkeys(options["upgrades"], True)
    if options["secret"]:
        upgrades["auth_secret"] = options["secret"].encode()
    if "tls_v1" in upgrades:
        upgrades["tls_options"] = {"ca_certs": options["ca"], "cert_reqs": ssl.CERT_REQUIRED}
    topic, (host, port) = options["topic"], options["nsqd"].split(":")

    # gnsq's Producer takes the OK of an upgrade for that of a publish and gives up; the client below it does not
    client = gnsq.NsqdTCPClient(host, int(port), **upgrades)
    client.connect()
    client.identify()
    for body in bodies[:2]:
        client.publish(topic, body)
        client.check_ok()
    client.multipublish(topic, bodies[2:])
    client.check_ok()

    digests = []
    consumer = gnsq.Consumer(topic, "channel", nsqd_tcp_addresses=[options["nsqd"]], max_in_flight=100, **upgrades)

    @consumer.on_message.connect
    def handle(consumer, message):
        digests.append(hashlib.sha256(message.body).hexdigest())
        if len(digests) == len(bodies):
            print(json.dumps(digests), flush=True)
            sys.stdin.read()
            gevent.spawn_later(0.05, consumer.close)

    consumer.start()


commands = {"publish": publish, "keep-publishing": keep_publishing, "consume": consume, "exchange": exchange}
commands[sys.argv[1]](*sys.argv[2:])
