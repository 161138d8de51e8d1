"""nsqd's side of discovery: it tells every nsqlookupd what it has, and asks for a new topic's channels.

Read `lookupds` (a task for each nsqlookupd), then `link` (the connection to one), `comparison` (what it has forgotten), and
`question` (the channels that others have).

Of nsqd, this package may import only `core` and `protocols`.
"""
