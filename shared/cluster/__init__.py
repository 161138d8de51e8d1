"""A replicated cluster as its nodes together describe it on /cluster, for nsqadmin and `penstock cluster status`. Pure.

Read `state` (the result: nodes, logs, copies), then `merge`, which makes it of all answers; `answer` reads one of them, with
defaults for missing parts, and `logs` has the leader of each log. `health` says how the cluster is.
"""
