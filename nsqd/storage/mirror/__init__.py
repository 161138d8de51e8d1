"""Copies of other nodes' logs, each in a directory of its own below DATA-PATH/mirrors.

* `mirror`: one such copy: its files, what is appended, what is written aside, and how far it is durable. Start here.
* `manifest`: the file that says which files are the mirror.
* `reading`: a mirror's files under the names that they have in the log, for whoever replays or copies it.
* `past`: reading topics back from a mirror.
* `adopting`: the steps by which a mirror becomes a log that this node owns.
"""
