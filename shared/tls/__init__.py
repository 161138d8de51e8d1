"""TLS of all ports, and of all clients.

Begin at `certificates`, over `strength` (ciphers), `any_certificate` (a policy of NSQ's) and `info` (what a connection shows),
set by `options`. `dates`: when certificates end. `client` and `stream` are for clients and for trio; `mutual` and
`node_certificates` for the nodes of a cluster.
"""
