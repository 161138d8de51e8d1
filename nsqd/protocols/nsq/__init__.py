"""The NSQ TCP protocol V2, server side (specs/nsq.md a).

* `peer`: one connection's state machine: commands, replies, what is buffered for it. Start here.
* `context`: what all connections have in common. `introduction`: who a client is; `liveness`: how long it may be silent.
* `publisher`, `subscription`: what it publishes, and what it consumes.
* `fast`: the shapes that make up nearly all traffic, recognised whole; it never decides "need more" or "malformed".
* `commands`: reads of single commands from the buffer: lines, numbers, bodies; the exact slow path.
* `identify`: what a client asks for in IDENTIFY, checked, and the answer.
* `settings`, `errors`: the limits in force, the errors of the wire.
"""
