"""The blocking client, for scripts and for Spark executors: plain sockets, one thread, no event loop.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("orders", b"one")

    with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
        for message in consumer:
            handle(message.body)
            message.finish()

* `producer`: PUB and MPUB to the first nsqd of a list that answers; `submit` and `flush` pipeline publishes.
* `consumer`: one channel from many nsqds, given or found through nsqlookupd, which share RDY, over `links`, `link`, `lookup`,
  `flow`.
* `message`, `settings`, `errors`: a message in a consumer's hands, names and time-outs, and the errors.
* `connection` over `dial`, `introduction`, `layers` and `tls`: one nsqd, from its address to IDENTIFY, AUTH, TLS and
  compression.

An object of this package belongs to one thread (only `Consumer.stop` may be called from any thread). An async client for
trio and asyncio is planned, beside this one and over the same protocol. This package imports no room and not `shared`.
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
