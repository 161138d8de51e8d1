"""A replicated cluster as its nodes together describe it on /cluster: what nsqadmin shows, and `penstock cluster status`. Pure.

Read `state` (the result: nodes, logs, copies, and whether it is whole), then `merge`, which makes it of all answers; `answer`
reads one of them, with defaults for missing parts, and `logs` has the leader of each log. `verdict` says whether the
cluster is whole.
"""
