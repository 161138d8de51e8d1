"""Looks at all topics, which change nothing: their ages, what is left of them, what they did lately. Read `ages.py` first."""
