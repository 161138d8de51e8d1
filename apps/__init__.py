"""The programs beside the daemons: NSQ's six tools, and `penstock` with its commands.

Read `penstock` (the list of commands), then `up` (`penstock up`) over `supervisor` (which daemons to start, stop and
restart), `signal_queue`, `daemon_set` (their flags and ports) and `secure_set` (their certificates and tokens); then `messages`
(read, peek, finish, requeue, ...) over `past` (where the logs of a topic are in a cluster) and `targets` (a channel, or a queue
of Disque's clients), `queues`, `backup` and `recover`.
`cluster_status` says whether a cluster is whole. `leave` has a node leave its cluster.
`chaos` breaks nodes of `penstock up` on purpose, which it reaches over `control`.
`cluster_certs` over `certificate_authority` makes the certificates of a cluster's nodes, `cluster_forget` tells them which
one is gone, and `cluster_promote` has one of them take over the log of another one. All that ask nodes over HTTP do so by
`node_client`, which knows tokens and TLS.

`nsq_tail` prints a topic, and `to_nsq` publishes standard input. `passthrough` reads the options of go-nsq's clients;
`addresses` checks the address flags of all tools; `interrupts` ends a program between two pieces of work. `nsq_stat` (the
rates of a channel) asks over `cluster`, and `to_file` is the package of nsq_to_file.

`nsq_to_nsq` and `nsq_to_http` share `forwarding` (the main loop), `workers` (threads for what may wait), `destinations` (which
one is next) and `timings` (their lines of status). `republishing` over `json_filter` is the work of the first, `requesting`
over `http_sending` that of the second.

This room imports no other room; it talks to daemons as any client does.
"""
