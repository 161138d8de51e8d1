"""The message daemon. See ARCHITECTURE.md for the files in reading order.

daemon > (http | net | discovery | storage) > protocols > core: calls go one way. core and protocols are pure.
"""
