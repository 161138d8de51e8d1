"""Questions to authorization servers: what a client may do.

Read `queries` (a task for each question of the reactor), then `servers` (in which order, for how long), then `exchange` (one
HTTP request to a server that cannot be trusted). What an answer means stands in nsqd/protocols/nsq/authorization.py.

Of nsqd, this package may import only `core` and `protocols`.
"""
