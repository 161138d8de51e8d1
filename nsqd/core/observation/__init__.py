"""Read-only views of all topics: ages, what a drain has left, and recent activity. Read `backlog_age.py` first."""
