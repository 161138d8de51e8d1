"""The blocking client, for scripts and for Spark executors: plain sockets, one thread, no event loop.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("orders", b"one")

    with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
        for message in consumer:
            handle(message.body)
            message.finish()

* `Producer` sends PUB and MPUB to the first nsqd of a list that answers; `submit` and `flush` pipeline publishes
* `Consumer` reads one channel from many nsqds, given or found through nsqlookupd, and shares RDY between them
* `Settings` holds names, time-outs and what to negotiate; the names of times end with their unit
* `connection` and `link` are the layer below these two: one nsqd, and one nsqd as part of a consumer
* `introduction`, `layers` and `tls` are below a connection: IDENTIFY and AUTH; TLS and compression; the TLS settings

An object of this package belongs to one thread (only `Consumer.stop` may be called from any thread). An async client for
trio and asyncio is planned, beside this one and over the same protocol.
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
