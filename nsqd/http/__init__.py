"""Implement nsqd's HTTP API. Handlers run in the HTTP thread and touch the broker only through the bridge.

* `routes`: all paths; `publish`: /pub and /mpub; `topology`: /topic/* and /channel/*; `stats`, `stats_text`: /stats;
  `observe`: /ping, /info, /livez, /readyz; `metrics`, `figures`: /metrics; `config`: /config/*.

See docs/design/nsq-http.md.
"""
