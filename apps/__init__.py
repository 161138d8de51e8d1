"""The programs next to the daemons: NSQ's six tools, and `penstock` with its commands.

Read `penstock` (the list of commands) over shared/terminal (the part that all of them share). `up` (`penstock up`) runs a
set of daemons over `supervisor` (which daemons to start, stop and restart), `daemon_set` (their flags and
ports), `daemon_logs` and `secure_set` (their certificates and tokens); `chaos` breaks its nodes on purpose, over `control`.
`read` (with `cursors`) works over `past` (the logs of a topic in a cluster). `contexts`, `backup`, `recover` and `leave` are a
command each, and so are `cluster_status`, `cluster_certs` over `certificate_authority`, and
`cluster_lost` (promote, forget). `node_client` is their HTTP client, with tokens and TLS.
`publishing` (pub, put), `consuming` (sub, reserve) and `load` (bench) use the clients of `penstock`, over `client_context`;
`schedule` has messages published later, `batch` shows batches. The commands about all nodes are in admin/terminal.

The tools share `tool` (start, exit codes, checks of addresses), `passthrough` (the options of go-nsq's clients) and
`interrupts` (signals, handled between two steps). `nsq_tail` prints a topic, and `to_nsq` publishes standard input.
`nsq_stat` (the rates of a channel) asks over `cluster`, and `to_file` is the package of nsq_to_file.
`nsq_to_nsq` and `nsq_to_http` share `forwarding` (the main loop), `workers` (threads for blocking work), `destinations` (the
choice of the next one) and `timings` (their lines of status). `republishing` over `json_filter` is the work of the first,
`requesting` over `http_sending` that of the second.

This component imports no other component; it talks to daemons as any client does.
"""
