"""The programs beside the daemons: `nsq_tail`, `to_nsq`, `nsq_to_nsq`, `nsq_to_http`, and `penstock` with its commands.

Read `penstock` (the list of commands), then `up` (`penstock up`) over `supervisor` (which daemons to start, stop and
restart) and `daemon_set` (their flags and ports); then `messages` (read, peek, finish, requeue, ...) and `backup`.
`passthrough` reads the options of go-nsq's clients; `interrupts` ends a program between two pieces of work.

`nsq_to_nsq` and `nsq_to_http` share `forwarding` (the main loop), `workers` (threads for what may wait), `destinations` (which
one is next) and `timings` (their lines of status). `republishing` over `json_filter` is the work of the first, `requesting`
over `http_sending` that of the second.

This room imports no other room; it talks to daemons as any client does.
"""
