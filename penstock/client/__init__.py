"""The blocking client, for scripts and for Spark executors: plain sockets, one thread, no event loop.

    with Producer("127.0.0.1:4150") as producer:
        producer.publish("orders", b"one")

    with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
        for message in consumer:
            handle(message.body)
            message.finish()

* `producer`: PUB and MPUB to the first nsqd of a list that answers; `submit` and `flush` pipeline publishes.
* `consumer`: one channel from many nsqds, given or found through nsqlookupd, over `links` (their sockets) and `lookup` (a
  thread that asks nsqlookupd).
* `connection` over `dial`: one socket. `resolver` finds the addresses of names, in threads.

All rules of the protocol and of a consumer's behaviour are in `penstock.sansio`; `penstock.aio` is the same for asyncio and
trio. An object of this package belongs to one thread (only `Consumer.stop` may be called from any thread). This package imports
no room and not `shared`.
"""

from penstock.client.consumer import Consumer
from penstock.client.producer import Producer
from penstock.sansio.errors import ClientError, ConnectionLost, ConsumerError, PublishError
from penstock.sansio.message import Message
from penstock.sansio.settings import Settings

__all__ = [
    "ClientError", "ConnectionLost", "Consumer", "ConsumerError", "Message", "Producer", "PublishError", "Settings",
]  # fmt: skip
