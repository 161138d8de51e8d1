"""The server's side of the wire protocols, without input or output: bytes in, bytes out.

The same objects serve the reactor, with or without TLS, as well as tests and fuzzers.

* `conversation`: what a protocol's peer offers to the carrier of its bytes; `transport`: what it may ask of that. Start here.
* `outbox`: the output that waits to be sent to a client, whatever protocol it speaks. `credential`: who the client is.
* `account`: what each identity uses of the node, and its limits; `job_client`: the base of beanstalkd's and Disque's clients.
* Packages: `nsq`, `beanstalk`, `disque`, and `http` for the requests that need no HTTP thread.

Of nsqd, this package may import only `core`. It is pure, as the core is. These modules know no protocol, and the
protocols do not know each other.
"""
