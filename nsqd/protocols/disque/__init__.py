"""The server's side of Disque's protocol, without input or output.

* `resp`: requests and replies as bytes; `arguments`: the table of commands, and their arguments; `ids`: job ids. These know no
  queue.
* `context`: the data that all connections share. `client`: a client's bytes, and its waiting. `peer`: all of its commands.
* `jobs`: the commands of producers and consumers; `queues`: showing queues, and pausing them.
* `server`: AUTH, HELLO, and small commands about the server; `info`, `clients`, `config` and `cluster_commands`: INFO, CLIENT,
  CONFIG and CLUSTER. `flush` deletes all jobs, for tests. `rights`: which commands a client may execute; `audited`: which are
  recorded in the audit.

Of nsqd, this package may import only `core` and the modules of `protocols`, and no other protocol. It is pure.
"""
