"""What all rooms share: options, logs, sockets, TLS, the process, and packages.

The packages: `http`, `auth` (who may), `audit` (who did), `cluster` (what its nodes say of it).

Read `options` first: an option is declared once. Its sources are `flags`, `environment` and `config_file`, put together by
`configuration`; `values`, `checks`, `secrets`, `daemon_options` and `print_config` belong to them.

* The process: `startup`, `daemon`, `listen` over `unix_sockets`, `trio_thread`, `memory`, `interpreter`, `partial_import`,
  `version`, `files` (writes that survive a power cut), `sealed_json` (with a checksum).
* The log: `log` over `repeats` and `lossy_stream`.
* TLS: `tls` over `tls_strength`, `tls_any_certificate` and `tls_info`, by `tls_options`; `tls_dates` (when certificates end);
  `tls_client` and `tls_stream` for clients and for trio; `tls_mutual` and `node_certificates` for the nodes of a cluster.
* Bounds and figures: `budget`, `connection_limiter`, `histogram`, `sampler` and `stacks`. Text: `text`;
  `json_fields` of answers. An HTTP response as a file object: `chunks`. Clients of other protocols at the wrong port:
  `foreign`.

This package imports no room, and neither penstock.client nor penstock.launch.
"""
