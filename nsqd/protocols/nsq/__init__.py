"""The NSQ TCP protocol V2, server side (specs/nsq.md a).

* `peer`: one connection's state machine: commands, replies, what is buffered for it. Start here.
* `outbox`: what waits to be sent to the client, and until when.
* `fast`: the shapes that make up nearly all traffic, recognised whole; it never decides "need more" or "malformed".
* `commands`: reads of single commands from the buffer: lines, numbers, bodies; the exact slow path.
* `identify`: what a client asks for in IDENTIFY, checked, and the answer.
* `settings`, `errors`: the limits in force, the errors of the wire.
"""
