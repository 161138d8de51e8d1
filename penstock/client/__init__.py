"""The blocking client, for scripts and for Spark executors: plain sockets, one thread, no event loop to bring along.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("orders", b"one")

    with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
        for message in consumer:
            handle(message.body)
            message.finish()

* `Producer`   PUB and MPUB to the first nsqd of a list that answers; `submit` and `flush` pipeline
* `Consumer`   one channel from many nsqds, given or found through nsqlookupd; RDY is shared between them
* `Settings`   names, time-outs and what to negotiate; times carry their unit in the name
* `connection` and `link` are below the two: one nsqd; one nsqd as part of a consumer
* `introduction`, `layers` and `tls` are below a connection: IDENTIFY and AUTH; TLS and compression; the TLS settings

An object here belongs to one thread (only `Consumer.stop` may be called from anywhere). The async client, for trio and
asyncio, comes later, beside this one and over the same protocol.
"""

from penstock.client.consumer import Consumer
from penstock.client.errors import ClientError, ConnectionLost, ConsumerError, PublishError
from penstock.client.message import Message
from penstock.client.producer import Producer
from penstock.client.settings import Settings

__all__ = [
    "ClientError",
    "ConnectionLost",
    "Consumer",
    "ConsumerError",
    "Message",
    "Producer",
    "PublishError",
    "Settings",
]
