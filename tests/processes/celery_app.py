"""The Celery application of test_celery.py: its tasks write to the file DONE, so that the test sees what was done."""

import os
import time

from celery import Celery, Task

from penstock.celery import install

install()
app = Celery("tests", broker=os.environ["BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=2,
    task_default_queue="work",
    task_ignore_result=True,
)


def note(line: str) -> None:
    """Append a line to the file; one write of a line is one piece."""
    with open(os.environ["DONE"], "a") as file:
        file.write(f"{line}\n")


@app.task
def add(number: int) -> None:
    """Note the number."""
    note(str(number))


@app.task
def slow(number: int, seconds: float) -> None:
    """Work for some seconds, then note the number."""
    note(f"begin {number}")
    time.sleep(seconds)
    note(str(number))


@app.task(bind=True, max_retries=3)
def flaky(self: "Task", number: int) -> None:
    """Fail once."""
    if self.request.retries == 0:
        raise self.retry(countdown=1)
    note(str(number))
