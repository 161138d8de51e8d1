"""The commit log: everything that must survive a restart, as one sequence of records over segment files.

Read `records` (the bytes on disk), `disk` (the system calls; nothing else touches files), `writer` (groups, segments, the
durable mark), `reader` (segments back into records; torn or damaged bytes), `replay` (records back into state), `store`.
"""
