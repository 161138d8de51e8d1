"""The server's side of Disque's protocol, without input or output.

* `resp`: requests and replies as bytes; `arguments`: what a command asks for; `ids`: job ids. These know no queue.
* `context`: the cluster and the process. `client`: a client's bytes, its waiting, and what all clients share. `peer`: all of
  its commands together.
* `jobs`: the commands of producers and consumers; `queues`: looking at queues, and pausing them.
* `server`: who the client is, and small commands about the server; `info`, `clients`, `config` and `cluster_commands`: INFO,
  CLIENT, CONFIG and CLUSTER. `flush` throws all jobs away, for tests. `rights`: what each command needs; `audited`: which are
  recorded in the audit.

Of nsqd, this package may import only `core` and the modules of `protocols`, and no other protocol. It is pure.
"""
