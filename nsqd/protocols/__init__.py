"""Wire protocols, sans-IO: bytes in, bytes out; the same object serves reactor, TLS task, test and fuzzer.

* `conversation`: what a protocol's peer offers to what carries its bytes; `transport`: what it may ask of that. Start here.
* `outbox`: what waits to be sent to a client, whatever protocol it speaks.
"""
