"""Alarms: what is wrong, since when, and who was told.

Begin at `monitor`: it looks at the nodes while no page is open. `rules` are the kinds with their thresholds, `checks` (and
`node_checks`) find them in a snapshot, `past` are earlier snapshots, `book` keeps what is raised and when it ends, about a
`subject`. `pages` shows them, `webhook` sends them, `state_store` keeps them over a restart.

It imports `output`, `users` and `nodes`.
"""
