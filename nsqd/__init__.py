"""The message daemon. See ARCHITECTURE.md for the files in reading order.

The layers are daemon > (http | net | discovery | storage) > protocols > core, and calls go one way. core and protocols are
pure.
"""
