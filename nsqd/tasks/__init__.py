"""The work of a node between its turns, each a task of trio.

* `pause_expiry`, `queue_expiry` (idle queues of Disque), `schedule_task`, `batch_task`, `rights_task` (the auth file),
  `series_task`, `deliveries` (the statistics topic), `topology_log` (lines about topics and channels), `dead_letter_topics`
  (messages that failed too often), `span_export` (OpenTelemetry). `time_slices` divides long loops.

It imports the core and the daemons' common parts.
"""
