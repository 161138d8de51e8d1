"""Messages: their frames, their ids, and the attributes that publishers give them.

Read `frame` (a message is its frame, encoded once), then `ids` (node number and sequence) and `id_ranges`, then
`attributes` (headers, keys, producers' sequences) and `deliver_at` (the header of that name). `epoch` names the process that
led a log for a period; `deletion` what was deleted from a log on a node that no longer led it.

This package imports nothing else of the core.
"""
