"""Measurements of a channel's messages: latencies and outcomes, taken as they leave it.

Read `measures` first; it uses `latency` (publish to FIN, over a sliding window) and `outcomes` (counts by producer, and
events).

Of the core, this package may import only `retention`, `message` and `timing`.
"""
