"""The client's side of a conversation with nsqd, sans-IO: bytes and times come in, bytes and decisions come out.

The blocking client and `penstock.aio` only do input and output around this package. Clocks and random numbers are passed in,
and no module here opens a socket, waits, or starts a thread.

* `session`: one connection, from IDENTIFY on, over `introduction` (IDENTIFY, TLS, compression, AUTH) and `layers`.
* `subscription`: a session with a SUB: messages, their answers, RDY, and the end by CLS.
* `consumer`: all subscriptions of a consumer, and their RDY. `dials` plans when each nsqd is dialed, `backoff` slows the
  consumer down after failures.
* `discovery`: when to ask the nsqlookupds, and how to read their responses.
* `publisher`: a session that publishes, and the publish that each response belongs to.
* `records`: the response of /topic/read as messages.
* `settings`, `message`, `errors`, `address`: values that both clients have in common; `tls` reads the certificates that
  settings name, `requests` has the headers and the TLS of HTTP requests.
"""
