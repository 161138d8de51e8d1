"""The code that all rooms share: options, logs, sockets, TLS, the process, and packages.

Read `options` first: an option is declared once. Its sources are `flags`, `environment` and `config_file`, put together by
`configuration`; `values`, `checks`, `secrets`, `daemon_options` and `print_config` belong to them. `startup` is the start of
every daemon.

The packages, each of which imports only those below it:

* `terminal`: what all commands of `penstock` share: addresses and credentials, tables, exit codes.
* `http`: servers, requests and answers.
* `auth` (rights), `audit` (a record of actions), `cluster` (its state, merged from its nodes' answers).
* `tls`: certificates of servers and clients.
* `process`: listening sockets, threads, memory, signals.

Further modules: the log (`log` over `repeats` and `lossy_stream`); `files` (writes that survive a power cut) and `sealed_json`
(with a checksum); bounds and statistics (`budget`, `connection_limiter`, `histogram`); `text`, `counted` (numbers with
their nouns), and `json_fields` of answers;
`topic_config` (the settings of topics, one row each) over `retry`; `foreign` (clients of other protocols at
the wrong port); `version`.

This package imports no room, and neither penstock.client nor penstock.launch.
"""
