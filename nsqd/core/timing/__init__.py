"""Time-outs and delays: queues ordered by due time, and the scan that serves them. Read `duequeue.py` first."""
