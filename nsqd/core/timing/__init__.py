"""Timeouts and delays: queues ordered by due time, and the scan that serves them.

Read `duequeue` (the priority queue), `agenda` (what is to be done in a turn, and which queue is due when), `scan` (the pool
that alone times out and releases), then `deferred` (a timer heap, and pages of later messages) over `deferred_pages`.
`reclaimer` frees what emptied and deleted readers had, a little in each turn. `pause` says who paused something, until when.

This package imports nothing else of the core.
"""
