"""Timeouts and delays: queues ordered by due time, and the scan that serves them.

Read `duequeue` (the priority queue), `agenda` (what is to be done in a turn, which queue is due when, and what is to be freed
bit by bit), `scan` (the pool that alone times out and releases), then `deferred` (a timer heap, and pages of later messages)
over `deferred_pages`. `pause` says who paused something, until when;
`throttle` limits a reader.

This package imports nothing else of the core.
"""
