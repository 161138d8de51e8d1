"""`penstock pipeline`: from topics that retain to a lake of Parquet files, and from there to rollups, reports and replays.

A lake is a directory. Every job writes its data first and then one manifest, by rename. Data without a manifest does not
exist, and the next run writes over it. So each job can be killed at any moment and started again. See docs/reference/spark.md.

Read `lake` first, then `archive`, `rollup`, `report`, `compact`, `replay` and `history`, a job each. `main` and
`command_line` start them; `session` finds Java and makes Spark's session, and `doctor` checks the requirements.

This component imports no other component.
"""
