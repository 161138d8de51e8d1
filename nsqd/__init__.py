"""The message daemon. See ARCHITECTURE.md for the files in reading order.

The layers are daemon > (http | net | discovery | storage | auth | statsd) > protocols > core. Calls go one way, and core and
protocols are pure.
"""
