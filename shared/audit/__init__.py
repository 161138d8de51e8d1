"""The audit of a daemon: who did what, from where, and with which outcome, as lines of JSON that form a chain.

Read `event` (a record), `chain` (its line, and whether lines follow each other), `rollup` (which of a flood of refusals are
counted instead), then `trail` (the file, and the thread that writes it). `command` is `penstock audit`. All but these two are
pure. Nothing here knows a protocol. The actions of nsqadmin's users have an audit of their own (admin/users/audit.py).

See docs/how-to/audit.md.
"""
