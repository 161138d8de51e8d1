"""Penstock: the public Python API. It imports no room (nsqd, lookupd, apps, shared): see ARCHITECTURE.md."""

__version__ = "0.1.0"
