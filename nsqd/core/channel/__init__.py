"""A channel of NSQ: its consumers, its messages in each state, and the actions of operators. Read `channel.py` first."""
