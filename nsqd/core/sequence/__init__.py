"""A topic's sequence as the core sees it: what storage does for it, and how messages get into it. Read `store.py` first."""
