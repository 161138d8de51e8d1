"""The async client, for asyncio and for trio (over anyio).

    import asyncio
    from penstock.aio import Consumer, Producer

    async def main():
        async with Producer(["127.0.0.1:4150"]) as producer:
            await producer.publish("orders", b"one")
        async with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
            async for message in consumer:
                print(message.body)
                message.finish()

    asyncio.run(main())

* `consumer`: one channel from many nsqds, as an async iterator or with a handler; `lookup` asks the nsqlookupds.
* `producer`: publishes to several nsqds, in `node` for each of them, and repeats unanswered publishes; `publish` is one call,
  and `waiter` its end.
* `reader`: reads the messages that a topic retains, once or with a cursor.
* `streams`: anyio's byte streams, with errors that name the address.

All rules of the protocol and of a consumer's behaviour are in `penstock.sansio`; `penstock.client` is the same, blocking. An
object of this package belongs to one event loop. This package imports no room and not `shared`.
"""

from penstock.aio.consumer import Consumer
from penstock.aio.producer import Producer
from penstock.aio.reader import Reader
from penstock.sansio.errors import ClientError, ConnectionLost, ConsumerError, PublishError, ReadError
from penstock.sansio.message import Message
from penstock.sansio.records import Record
from penstock.sansio.settings import Settings

__all__ = [
    "ClientError", "ConnectionLost", "Consumer", "ConsumerError", "Message", "Producer", "PublishError", "ReadError",
    "Reader", "Record", "Settings",
]  # fmt: skip
