"""A start of nsqd: options become a node that serves.

Begin at `daemon`: it puts the parts together and runs them. In order: `listeners` (sockets before imports), `opening` (a data
directory becomes a broker), `front_ends` with `beanstalk`, `disque` and `shared_port` (what listens to clients), `http_server`,
`clustering`, and `client_ports` (when clients are accepted). `identity` is how the node describes itself. `fence` is the
start that follows while the process runs, because another node has promoted the log. `signals` (the end, and SIGHUP) and
`audit` (what nsqd records by itself) continue from then.

It may import all of nsqd but `main` and `commands`.
"""
