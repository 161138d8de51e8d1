"""A topic's sequence as the core sees it: what storage does for it, and what is published into it. Read `store.py` first."""
