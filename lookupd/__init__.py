"""nsqlookupd: which nsqd has which topics and channels. All state is in memory.

Read `registry` (the state, pure) over `producers` and `producer_slots`, then `protocol` (one connection's bytes, pure), then
`net` and `http` (the two listeners), then `daemon` and `main`.

* `cluster_nodes`: when the nodes of clusters were heard.
* `tls`: which connections are encrypted. `pending` and `rate_limit`: who is let in, and how fast an address may send.
* `metrics`: what Prometheus reads. `options`: the flags.

This room imports no other room, and neither penstock.client nor penstock.launch. `registry` and `protocol` use no socket or
clock.
"""
