"""The HTTP side that all daemons share.

Read `api` (NSQ's conventions: routes, errors, JSON), `hosts` (foreign Host and Origin), `bridge` (how a handler, in the HTTP
thread, runs a function in the trio thread and waits for it), `server` (uvicorn in a thread of its own: it cannot run on trio).

* Connections: `acceptor`, `guard` (in front of uvicorn: slow, oversized and ambiguous requests), `transport` (to which answers
  are written), `secure` (TLS), `exchange` (one request and answer), `answer_log` (its line in the log).
* Routes and answers: `route` and `argument` (their declarations), `debug`, `process_metrics`, `options` (/config),
  `errors`, `extensions` (keys that NSQ does not have).
* `authorize`: the rights that routes need; `proof`: the client's identity by its connection; `under_way`: requests that end
  when the right to them ends.
* `bounded`: answers of other daemons, read with a bound.

This package imports no room.
"""
