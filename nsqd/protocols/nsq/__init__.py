"""Implement the server's side of the NSQ TCP protocol V2.

* `peer`: one connection's state machine: commands, replies, and the output that is buffered for it. Start here.
* `context`: what all connections share. `introduction`: who a client is; `liveness`: how long it may be silent.
* `publisher`, `subscription`: what a client publishes, and what it consumes.
* `fast`: the shapes that make up nearly all traffic, recognized whole; it never decides "need more" or "malformed".
* `commands`: reads of single commands from the buffer (lines, numbers, bodies); this is the exact slow path.
* `identify`: what a client asks for in IDENTIFY, checked, and the answer.
* `settings`, `errors`: the limits in force, and the errors of the wire.

See docs/design/nsq-protocol.md.
"""
