"""The commit log: everything that must survive a restart, as one sequence of records over segment files.

Read `records` (the bytes on disk), `disk` (the system calls; nothing else touches the log's files), `writer` (groups, segments,
the durable mark), `syncer` (when and by which thread it is synced), `store` (the turn), `journal` (verbs to
records).

* A start: `opening`, `reading`, `reader` over `scan` (segments back into records), `replay` (records back into states),
  `state`, `identity`, `epochs`, `followers` (in sync), `parent` (the log that this one was restored from), `segments`,
  `quarantine` (copies of unreadable bytes).
* Memory: `cache` over `locations` (messages on disk, and reading them back).
* Staying small: `files` (which one holds a segment), `checkpoint` over `sources`, `tidying`, `cleaner` and `retention`.
* Time and room: `clocks`, `space`, `spare` (the next segment, made ahead).
* Reading back: `history`, `long_polls`. Inspecting and copying: `contents`, `backup`, `verify` over `frozen`,
  `restore`, `succession` (the log after a failover; `tail_deletions`: its deletions from the old one), `held_ids`, `copying`
  (the log for its followers) and `copies` (how many nodes have it).

Of nsqd, this package may import only `core`, `protocols` and the rest of `storage`.
"""
