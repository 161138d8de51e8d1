"""Penstock's public Python API: `protocol`, `client`, `jobs`, `celery` and `spark`.

`launch` is how console scripts find the rooms (nsqd, lookupd, apps, admin, shared, pipeline), which are not importable by
name where the package is installed. This package imports no room and not `shared`.
"""

__version__ = "0.1.0"
