"""What stays after it was finished: for how long, for whom, and how it is read back. Read `keeping.py` first."""
