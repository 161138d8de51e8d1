"""Storage of messages and topology: implementations of the core's store, and files of other daemons.

Read `sequence` (a topic's messages as extents) and `stored_extent` (reference counts), then `memory` (the store of what is
ephemeral), then the package `log` (the store of everything else).

* `directory` and `saver`: the locked data directory, and nsqd.dat.
* `data_import`: the first start on another daemon's directory; `nsq_import` over `diskqueue` for NSQ, `binlog_import` over
  `binlog` for beanstalkd, `disque_import` over `disque_aof` for Disque.

Of nsqd, this package may import only `core` and `protocols`.
"""
