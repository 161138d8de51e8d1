"""`penstock archive` and `penstock pipeline`: from topics that retain to a lake, then to rollups, reports and replays.

A lake has three tables of Delta Lake: messages, their rollup, and that of deliveries. Each job changes one of them by one
commit at a time, which also says how far the job is. So each can be killed at any moment and started again. See
docs/reference/lake.md.

Read `archiver` and `archive` first, then `rollup` over `counts`, `report` and `history` over `rollups`, `compact`, `vacuum` and
`replay`. `main` and `command_line` start them, and they print by `saying`; `session` finds Java and makes Spark's session, and
`doctor` checks the requirements.

This component imports no other component.
"""
