"""Who leads each log: elections, votes, transfer, closed logs. Nothing here does input or output, or asks a clock.

* `elections`: what happens to a log whose leader is lost. Start here. `cases`: what is known of such a log.
* `candidate`: this node asks all others for their votes. `voter`: it answers candidates. `election_frames`: what they say.
* `replica_states`: what elections must know of replicas, and what followers must know of each other.
* `leaving`: a node that leaves transfers its logs (`transfer_frames`).
* `paused`: a node that stood still delivers nothing until it knows who leads its logs by now.
* `closed_logs`: logs that nobody leads any more, because nothing in them is unfinished.
"""
