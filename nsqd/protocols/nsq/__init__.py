"""The server's side of the NSQ TCP protocol V2, without input or output.

Read `peer` first: one connection's state machine. Its parts are `introduction` (IDENTIFY and AUTH: `identify`, `access`),
`publisher` and `subscription` (publishing and consuming), and `liveness` (timeouts and heartbeats).

* `fast`: the shapes of nearly all traffic, recognized whole; `commands`: the exact reading of everything, which decides.
* `limited`: delivery to consumers whose identity has limits.
* `batch`: large MPUBs in slices; `creation`: the command that creates a topic waits for nsqlookupd.
* `authorization`: the request to an authorization server, and its response.
* `context`, `settings`, `errors`: the data that all connections share, the limits in force, and the errors of the wire.

Of nsqd, this package may import only `core` and the other modules of `protocols`. It is pure.

See docs/contributing/design/nsq-protocol.md.
"""
