"""Penstock's public Python API, which imports no room (nsqd, lookupd, apps, shared): see ARCHITECTURE.md."""

__version__ = "0.1.0"
