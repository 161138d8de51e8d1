"""Ask nodes over HTTP, and say what their answers mean. Begin at `cluster`: who has what.

* Questions: `upstreams` (with deadlines and rights) over `places` (URLs) and `answer_budget` (bounds of all answers together);
  `response_cache` (viewers share answers), `fallback` (nobody waits for a node that hangs), `answer_times`.
* What pages ask: `queries` over `merge`, `views` (with `decoders` of bodies), `overview` and `sorting`.
* What is remembered of nodes: `inventory` (those that were ever seen) over `observations` and `snapshot`; `series`,
  `series_past` and `held_past` (of nodes that are gone, or are NSQ's), `history` (the rollups of a lake), `inactive` (topics
  without a node).
* Figures: `channel_figures`, `backlogs`, `talkers`.

It imports no other folder of nsqadmin.
"""
