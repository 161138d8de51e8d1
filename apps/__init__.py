"""The programs beside the daemons: `nsq_tail`, `to_nsq`, `nsq_stat`, nsq_to_file, and `penstock` with its commands.

Read `penstock` (the list of commands), then `up` (`penstock up`) over `supervisor` (which daemons to start, stop and
restart) and `daemon_set` (their flags and ports); then `messages` (read, peek, finish, requeue, ...) and `backup`.
`nsq_stat` (the rates of a channel) asks over `cluster`, and `to_file` is the package of nsq_to_file.
`passthrough` reads the options of go-nsq's clients; `interrupts` ends a program between two pieces of work.

This room imports no other room; it talks to daemons as any client does.
"""
