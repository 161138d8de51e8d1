"""The commands of `penstock` about all nodes of a context: what they hold, what is wrong, and actions on all at once.

Begin at `main`, which imports only what its command needs. `session` has the nodes and asks them all at once, over the same
queries as the pages.

* To see: `listing` (topics, channels, tubes, clients, producers) over `channel_counts`, `health` (status, nodes, alarms),
  `doctor`, `bundle`, `top`, `messages` (show, and what acts on messages: peek, kick, bury, ...) over `targets`.
* To act: `actions` (create, delete, empty, pause, config) and `node_actions` (drain, undrain, disconnect, request).
* `arguments` are those of all commands.

It imports `alarms`, `messages`, `users` and `nodes`, and neither `pages` nor `output`.
"""
