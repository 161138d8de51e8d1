"""The server's side of Disque's protocol, without input or output.

Read `client` (a client's bytes, and blocking) and `resp` (how a request is read and a reply is written), then `arguments` (what
the words of a command mean, and the table of commands), `ids` (job ids) and `context` (what all connections share). The
commands follow: `jobs` (producers and consumers), `queues` (QLEN, QSTAT, PAUSE and the scans) and `server` (INFO, CONFIG,
CLIENT, CLUSTER and the like). `peer` puts all of them together.

Of nsqd, this package may import only `core` and the modules of `protocols`, and no other protocol. It is pure.
"""
