"""The message broker: topics, channels, tubes and timeouts, as pure and synchronous code.

The core uses no socket, clock, file, log, thread or random number. Callers pass in `now` (monotonic ns), `wall` (ns since the
epoch), random numbers and the store, so one object graph serves the reactor, the tests and the simulators. Messages of a topic
are counted by ordinals, dense and from 0.

Read from the bottom up. Each line may import only the lines above it, and names on one line do not import each other:

* `message`, `timing`: frames, ids and attributes; queues by due time, the agenda of a turn, the scan.
* `retention`; then `measurement`; then `sequence`: the messages of a topic, and the services of its storage.
* `scheduling`: messages that are published at set times, and the times at which they are due.
* `pauses`, `limits`, `records`, `cluster_view`: which pauses end; the options; what each record of the log says; what HTTP
  asks of a cluster.
* `registry`, `reader`, `written_chunks`, `batches`, `spans`: numbers, limits and changes of the node; what a topic asks of a
  reader; the part of a topic that a checkpoint writes before its state; messages that belong together; publishes and
  deliveries for OpenTelemetry.
* `node_context`, `reader_state`, `trace`: what topics share; the durable state of a reader; the events of a message.
* `channel`, `work_queue`: the two kinds of readers. `spanned_store`: the store that makes spans of what both record.
* `distribution`; then `topic`; then `directory`: the readers of a topic, one topic, all topics.
* `tubes`, `topic_state`, `receives`: all tubes of a node; the durable state of a topic; consumers over HTTP. `queues`: tubes as
  clients of Disque see them; `imports`: jobs of other nodes, by queue.
* `broker`: the steps of a turn. Start here for the view from above.
* `observation`, `recovery`, `topology`, `shards`, `shard_deletions`: views of all topics; topics from a log's states, or from
  nsqd.dat; topics of promoted logs, and what is deleted of them.
"""
