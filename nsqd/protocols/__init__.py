"""The server's side of the wire protocols, without input or output: bytes in, bytes out.

The same objects serve the reactor, with or without TLS, as well as tests and fuzzers.

* `conversation`: a protocol's peer as the carrier of its bytes sees it; `transport`: the carrier as the peer sees it. Start
  here.
* `outbox`: the output that waits to be sent to a client, whatever protocol it speaks. `credential`: who the client is.
* `account`: what each identity uses of the node, and its limits; `job_client`: the base of beanstalkd's and Disque's clients.
* Packages: `nsq`, `beanstalk`, `disque`, and `http` for the requests that need no HTTP thread.

Of nsqd, this package may import only `core`. It is pure, as the core is. These modules know no protocol, and the
protocols do not know each other.
"""
