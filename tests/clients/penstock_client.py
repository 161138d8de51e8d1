"""Penstock's own client behind the command of upgrades.py."""

import base64
import hashlib
import json
import sys

from penstock.client import Consumer, Producer, Settings


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


{"exchange": exchange}[sys.argv[1]](*sys.argv[2:])
