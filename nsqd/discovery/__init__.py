"""nsqd's side of discovery: it registers its topics at every nsqlookupd, and asks for a new topic's channels.

Read `lookupds` (a task for each nsqlookupd), then `link` (the connection to one), `comparison` (the names that it has
forgotten), and `queries` (the channels that other nodes have).

Of nsqd, this package may import only `core` and `protocols`.
"""
