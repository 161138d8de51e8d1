"""Messages: their frames, their ids, and the attributes that publishers give them. Read `frame.py` first."""
