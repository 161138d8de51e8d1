"""Retention: how long finished messages stay, for whom, and how clients read them back.

Read `policy` (what a topic's settings are), `cursors` (named positions of clients), `history` (reading a topic back).
`contents` and `backup` are the forms in which storage reports what the log holds, and copies it.

Of the core, this package may import only `message` and `timing`.
"""
