"""Measurements of a channel's messages: latencies and outcomes, taken as they leave it. Read `measures.py` first."""
