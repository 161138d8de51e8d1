"""The application of test_dramatiq.py: its actor notes in the file DONE which messages are done."""

import os
import time

import dramatiq

from penstock.dramatiq import PenstockBroker
from tests.processes.task_workers import note

dramatiq.set_broker(PenstockBroker(os.environ["BROKER"]))


@dramatiq.actor(queue_name="work")
def slow(number: int, seconds: float) -> None:
    """Work for some seconds, then note the number."""
    note(f"begin {number}")
    time.sleep(seconds)
    note(str(number))
