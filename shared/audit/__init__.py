"""The audit of a daemon: who did what, from where, and what came of it, as lines of JSON that form a chain.

Read `event` (what is recorded), `chain` (its line, and whether lines follow each other), `rollup` (which of a flood of refusals
are counted instead), then `trail` (the thread that writes) over `file`. `command` is `penstock audit`. All but the last three
are pure. Nothing here knows a protocol. nsqadmin has an audit of its own (admin/users/audit.py): what its users did there.

See docs/operations/audit.md.
"""
