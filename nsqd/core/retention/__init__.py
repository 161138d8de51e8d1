"""Retention: how long finished messages stay, for whom, and how clients read them back. Read `policy.py` first."""
