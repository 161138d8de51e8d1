"""Alarms: problems of the cluster, since when they exist, and their notifications.

Begin at `monitor`: it checks the nodes while no page is open. `rules` are the kinds with their thresholds, `checks` (and
`node_checks`) find them in a snapshot, `past` are earlier snapshots, `book` has the alarms from their beginning to their end,
each about a `subject`. `pages` shows them and their `runbooks`, `webhook` sends them, `state_store` keeps them over a restart.

It imports `output`, `users` and `nodes`.
"""
