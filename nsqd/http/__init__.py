"""nsqd's HTTP API. Handlers run in the HTTP thread and touch the broker only through the bridge, between two turns.

Read `routes` (each is declared once, by the module that answers it; `audited` says which are recorded), then
`node` (what handlers know of the daemon), then `pauses` as a short example of a route.

* Publishing, consuming and topology: `publish`, `receive`, `topology`, `topic_config`, `pauses`, `schedules`, `batches`.
* Health and statistics: `health`, `stats`, `stats_text`, `stats_client`, `metrics` over `figures` and `cluster_metrics`,
  `series`, `overview`, `attention`, `tubes`.
* Messages: `messages` with `message_filter`, `message_actions`, `dead_letters`, `jobs`, over `inspection` and `parts`
  (of a channel, in several logs); `client_actions` (consumers).
* Reading back: `logs` (a topic in one of several logs), `read_back`, `offsets`, `cursors`, `all_cursors`,
  `all_offsets`.
* The node: `config`, `storage`, `backup`, `drain`, `identities`, `trace`, `cluster`, `cuts`.
* Shared by routes: `arguments`, `archive` (tar streams), `coalescing` (expensive answers are made once at a time).

Of nsqd, this package may import `core`, `protocols` and the options, and not storage, net, discovery, auth or statsd.

See docs/contributing/design/nsq-http.md.
"""
