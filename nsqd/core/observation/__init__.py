"""Read-only views of all topics: ages, what a drain has left, and recent activity.

Read `backlog_age` (since when messages wait), `sums` (figures over all logs that the node owns), `series` (what topics did
lately, in ring buffers of fixed memory), `drain_status` (what a node that drains has left).

This package may import the whole core, except `recovery` and `topology`. The core does not import it.
"""
