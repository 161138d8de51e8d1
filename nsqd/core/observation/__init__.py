"""Read-only views of all topics: ages, what a drain has left, and recent activity.

Read `backlog_age` (since when messages wait), `sums` (what a topic or channel has, or has counted, over all logs that the node
leads), `series` (what topics and channels did lately, in bounded memory) over `series_block` (how it is packed),
`held_changes` (of backlogs, over five minutes), `drain_status` (what a node that drains has left).

This package may import the whole core, except `recovery` and `topology`. The core does not import it.
"""
