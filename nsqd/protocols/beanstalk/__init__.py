"""The server's side of beanstalkd's protocol, without input or output.

Read `client` (bytes to commands, and answers to bytes), `commands` (how a line is read), `peer` (producers and workers),
then `operators` (commands that show and change tubes and jobs) and `stats` (beanstalkd's YAML). `states`: its words for the
states of a job. In a cluster, `borrower` has the commands about jobs of other nodes, and `guest` stands for a client of
another node. `rights`: which commands a client may execute.

Of nsqd, this package may import only `core` and the modules of `protocols`, and not the package `nsq`. It is pure.
"""
