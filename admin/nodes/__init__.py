"""Requests to nodes over HTTP, and the meaning of the answers. Begin at `cluster`: the nodes and their topics.

* Requests: `upstreams` (with deadlines and rights) over `places` (URLs) and `answer_budget` (bounds of all answers together);
  `response_cache` (viewers share answers), `fallback` (pages do not wait for a node that hangs), `answer_times`.
* Queries of pages: `queries` over `merge`, `views` (with `decoders` of bodies), `overview` and `sorting`.
* State: `inventory` (all nodes that were ever seen) over `observations` and `snapshot`; `series`, `series_past` and
  `held_past` (of nodes that are gone, or are NSQ's), `history` (the rollups of a lake), `inactive` (topics without a node).
* Statistics: `channel_figures`, `backlogs`, `publishers`, `loads`.

It imports no other folder of nsqadmin.
"""
