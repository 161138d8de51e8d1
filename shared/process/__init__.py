"""A process that serves: how it listens, waits for its end, and is observed.

Begin at `daemon` (signals, descriptors, sockets). `listen` over `unix_sockets` opens addresses; `trio_thread` runs trio beside
another loop; `partial_import` and `interpreter` are about the start; `memory`, `sampler` and `stacks` say what it does.
"""
