"""What a channel measures of its messages as they leave it. Read `measures.py` first."""
