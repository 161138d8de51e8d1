"""Requests to authorization servers about the rights of clients.

Read `queries` (a task for each request of the reactor), then `servers` (in which order, for how long), then `exchange` (one
HTTP request to a server that cannot be trusted). nsqd/protocols/nsq/authorization.py reads the responses.

Of nsqd, this package may import only `core` and `protocols`.
"""
