"""Read-only views of all topics: ages, what a drain has left, and recent activity.

Read `backlog_age` (since when messages wait), `sums` (figures over all logs that the node owns), `series` (what topics and
channels did lately, in bounded memory) over `series_block` (how it is packed), `held_changes` (of backlogs, over five
minutes) and `shard_counts` (promoting a log is no activity), `drain_status` (what a node that drains has left).

This package may import the whole core, except `recovery` and `topology`. The core does not import it.
"""
