"""manage.py penstock_worker: run tasks until SIGTERM or SIGINT."""

import signal
from argparse import ArgumentParser
from types import FrameType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from penstock.django.backend import PenstockBackend
from penstock.django.tasks import task_backends
from penstock.django.worker import Worker
from penstock.jobs import JobsError


class Command(BaseCommand):
    """The command; its help is for `manage.py help penstock_worker`."""

    help = "Run the tasks of a backend until SIGTERM or SIGINT. Tasks at work are finished; a second signal ends them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the flags."""
        parser.add_argument("--backend", default="default", help="name of the backend in TASKS (default: default)")
        parser.add_argument(
            "--queue", action="append", help="a queue; may be repeated (default: QUEUES of the backend)"
        )
        parser.add_argument("--threads", type=int, default=4, help="tasks at a time (default: 4)")

    def handle(self, *, backend: str, queue: list[str] | None, threads: int, **_: Any) -> None:
        """Run the worker. Raises CommandError for flags that do not fit the settings, and for a node that refuses."""
        tasks = task_backends[backend]
        if not isinstance(tasks, PenstockBackend):
            raise CommandError(f"the backend {backend!r} is not penstock.django.backend.PenstockBackend")
        queues = queue or sorted(tasks.queues)
        if not queues or threads < 1:
            raise CommandError(
                "name a --queue, because the backend has no QUEUES" if not queues else "--threads: at least 1"
            )
        worker = Worker(tasks, queues, threads)

        def stop(number: int, _: FrameType | None) -> None:
            signal.signal(number, before[number])
            worker.stop()

        before: dict[int, Any] = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
        self.stdout.write(f"running tasks of {', '.join(queues)}")
        try:
            worker.run()
        except (JobsError, ValueError) as error:
            raise CommandError(str(error)) from error
