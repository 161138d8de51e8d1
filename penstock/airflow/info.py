"""The entry point of Airflow's providers, which every process of Airflow calls."""

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the classes of this provider by name."""
    name = "Penstock"
    return {
        "package-name": "penstock",
        "name": name,
        "description": "A message queue for the clients of NSQ, beanstalkd and Disque.",
        "queues": ["penstock.airflow.queue.PenstockMessageQueueProvider"],
        "triggers": [{"integration-name": name, "python-modules": ["penstock.airflow.trigger"]}],
        "sensors": [{"integration-name": name, "python-modules": ["penstock.airflow.sensor"]}],
    }
