"""The application of test_taskiq.py: its tasks write to the file DONE, so that the test sees what was done."""

import asyncio
import os

from penstock.taskiq import PenstockBroker
from tests.processes.task_workers import note

broker = PenstockBroker(os.environ["BROKER"], "work", concurrency=4)


@broker.task
async def slow(number: int, seconds: float) -> None:
    """Work for some seconds, then note the number."""
    note(f"begin {number}")
    await asyncio.sleep(seconds)
    note(str(number))
