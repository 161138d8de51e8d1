"""The commit log: everything that must survive, in one sequence of records over segment files.

Read `records` (what is on disk), `disk` (the system calls, and nothing else that knows a file), `writer` (groups, segments,
the durable mark), `reader` (segments back into records; torn or damaged), `replay` (records back into state), `store`.
"""
