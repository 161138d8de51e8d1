"""What all rooms share: options, logs, sockets, TLS, the process, and packages.

Read `options` first: an option is declared once. Its sources are `flags`, `environment` and `config_file`, put together by
`configuration`; `values`, `checks`, `secrets`, `daemon_options` and `print_config` belong to them. `startup` is what every
daemon does first.

The packages, each of which imports only those below it:

* `http`: servers, and what requests and answers have in common.
* `auth` (who may), `audit` (who did), `cluster` (what its nodes say of it).
* `tls`: certificates, and who shows which.
* `process`: sockets that listen, threads, memory, signals.

Beside them: the log (`log` over `repeats` and `lossy_stream`); `files` (writes that survive a power cut) and `sealed_json`
(with a checksum); bounds and figures (`budget`, `connection_limiter`, `histogram`); `text`, and `json_fields` of answers;
`topic_config` (the settings of topics, one row each); `chunks` (an HTTP response as a file object); `foreign` (clients of
other protocols at the wrong port); `version`.

This package imports no room, and neither penstock.client nor penstock.launch.
"""
