"""The client's side of a conversation with nsqd, sans-IO: bytes and times come in, bytes and decisions come out.

The blocking client and `penstock.aio` do nothing but input and output around this package: no rule stands in both. Clocks and
random numbers are passed in, and no module here opens a socket, waits, or starts a thread.

* `session`: one connection, from IDENTIFY on, over `introduction` (IDENTIFY, TLS, compression, AUTH) and `layers`.
* `subscription`: what a session with a SUB adds: messages, their answers, RDY, and the end by CLS.
* `consumer`: all subscriptions of a consumer: which nsqds are wanted and when each is dialed, over `retries`; RDY for each,
  over `rdy`; slowing down after failures, over `backoff`.
* `discovery`: when to ask the nsqlookupds, and what their answers mean.
* `publisher`: what a session adds for publishing: which answer belongs to which publish.
* `records`: what /topic/read answers, as messages.
* `settings`, `message`, `errors`, `address`: values that both clients have in common; `tls` reads the certificates that
  settings name, `requests` says what requests over HTTP show and trust.
"""
