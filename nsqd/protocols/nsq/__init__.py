"""The server's side of the NSQ TCP protocol V2, without input or output.

Read `peer` first: one connection's state machine. Its parts are `introduction` (who a client is: `identify`, `access`),
`publisher` and `subscription` (what a client publishes and consumes), and `liveness` (how long it may be silent).

* `fast`: the shapes of nearly all traffic, recognized whole; `commands`: the exact reading of everything, which decides.
* `limited`: delivery to consumers whose identity has limits.
* `batch`: large MPUBs in portions; `creation`: the command that creates a topic waits for nsqlookupd.
* `authorization`: the request to an authorization server, and its response.
* `context`, `settings`, `errors`: what all connections share, the limits in force, and the errors of the wire.

Of nsqd, this package may import only `core` and the other modules of `protocols`. It is pure.

See docs/design/nsq-protocol.md.
"""
