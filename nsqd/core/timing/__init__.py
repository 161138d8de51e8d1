"""What happens at a time: queues by due time, and the scan that serves them. Read `duequeue.py` first."""
