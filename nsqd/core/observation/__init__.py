"""What is measured and told of topics and channels, and changes nothing. Read `latency.py` first."""
