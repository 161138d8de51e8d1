"""Penstock's public Python API.

`client` (blocking) and `aio` (asyncio and trio) are for NSQ, over `sansio` and `protocol`. `jobs` (both) is for jobs,
`celery` is a transport for Celery, `taskiq` and `dramatiq` are brokers for the frameworks of these names, `django` is a backend
of Django's tasks, `airflow` a provider for Airflow, `spark` a data source, and `lake` the archive of topics.
`forks` keeps all of them off their parent's connections in a forked process. `telemetry` has the spans of OpenTelemetry of the
clients, if it is installed.

`launch` is how console scripts find the rooms (nsqd, lookupd, apps, admin, shared, pipeline), which are not importable by
name where the package is installed. This package imports no room and not `shared`.
"""

__version__ = "0.1.0"
