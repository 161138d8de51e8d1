"""The leader of each log: elections, votes, transfer, closed logs. Nothing here does input or output, or reads a clock.

* `elections`: what happens to a log whose leader is lost. Start here. `cases`: the state of such a log.
* `candidate`: this node asks all others for their votes. `voter`: it replies to candidates. `election_frames`: their frames.
* `replica_states`: the states of replicas for elections, and the in-sync followers for followers.
* `leaving`: a node that leaves transfers its logs.
* `paused`: a node that was paused delivers nothing until it knows which nodes lead its logs now.
* `closed_logs`: logs without a leader, because nothing in them is unfinished.
"""
