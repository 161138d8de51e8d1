"""A provider for Airflow, whose DAGs run for messages: install the extra `airflow`. See docs/how-to/airflow.md.

* `info`: the entry point by which Airflow finds the others.
* `messages`: a channel's messages for a triggerer; it imports no Airflow. `trigger`: yields them as events. `queue`: finds the
  trigger by the scheme `penstock`.
* `sensor`: a task that waits for a message.

This package imports no room and not `shared`; only it imports airflow.
"""
