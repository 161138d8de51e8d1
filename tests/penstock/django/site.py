"""A Django project in one file: its settings and its tasks; `manage` runs its commands."""

import asyncio
import os
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.conf import settings

TASKS = "django.tasks" if find_spec("django.tasks") else "django_tasks"  # Django 6, or its backport
settings.configure(
    INSTALLED_APPS=["penstock.django"] if TASKS == "django.tasks" else ["django_tasks", "penstock.django"],
    USE_TZ=True,
    TASKS={
        "default": {
            "BACKEND": "penstock.django.backend.PenstockBackend",
            "QUEUES": ["default", "mail"],
            "OPTIONS": {"ADDRESS": os.environ.get("BROKER", "127.0.0.1:11300"), "MAX_ATTEMPTS": 2, "FIRST_DELAY_S": 0},
        },
        "other": {"BACKEND": f"{TASKS}.backends.dummy.DummyBackend"},
        "wrong": {"BACKEND": "penstock.django.backend.PenstockBackend", "OPTIONS": {"ADDRES": "x"}},
    },
)

import django  # noqa: E402

django.setup()

from tests.processes.task_workers import note  # noqa: E402

task = import_module(TASKS).task
DONE: list[object] = []


@task
def add(number: int, seconds: float = 0) -> int:
    """Work for some seconds, then note the number."""
    note(f"begin {number}")
    time.sleep(seconds)
    note(str(number))
    return number


@task
def collect(value: object) -> None:
    """Note the value in this process."""
    DONE.append(value)


@task(takes_context=True)
def fail(context: Any, times: int) -> None:
    """Fail for the first attempts."""
    DONE.append(context.attempt)
    if context.attempt <= times:
        raise ValueError("as it should")


@task
async def sleep(value: object) -> None:
    """Note the value in this process, as a coroutine."""
    await asyncio.sleep(0)
    DONE.append(value)
