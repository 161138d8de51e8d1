"""A process that serves: how it listens, waits for its end, and is observed.

Begin at `daemon` (signals, descriptors, sockets). `listen` over `unix_sockets` opens addresses; `trio_thread` gives other
threads access to trio; `service_manager` reports to systemd; `partial_import` makes the start faster; `memory` and `stacks` are
for operators.
"""
