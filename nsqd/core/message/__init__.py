"""What a message is: its frame, its id, and what its publisher says of it. Read `frame.py` first."""
