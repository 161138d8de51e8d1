"""Messages: their frames, their ids, and the attributes that publishers give them.

Read `frame` (a message is its frame, encoded once), then `ids` (node number and sequence) and `id_ranges`, then
`attributes` (headers, keys, producers' sequences). `epoch` tells which process owned a log, and when; `deletion` what was
deleted from a log at a node that did not own it any more.

This package imports nothing else of the core.
"""
