"""`penstock sub` and `penstock reserve`: print the messages of a channel, and the jobs of tubes, as they come.

A message is finished, and a job deleted, when its line has been written and flushed, and not before.
"""

from __future__ import annotations

import argparse
import base64
import json
import selectors
import sys
import time
from contextlib import ExitStack
from typing import Any

from apps.client_context import consumer_addresses, job_address, job_tls, jobs_failure, settings_of
from apps.interrupts import Interrupts
from apps.node_client import add_address
from apps.nsq_tail import Printer, write_unless_interrupted
from penstock.client import Consumer, Message
from penstock.jobs import Job, Jobs, JobsError, JobsSettings
from penstock.sansio.errors import ClientError
from shared.terminal.commands import CommandError, Commands, ExitCode, make_command, whole_number
from shared.terminal.context import add_setting
from shared.terminal.output import body_line

TICK = 0.5  # s: consumers do their timed work when polled
EMPTY_AFTER = 1.0  # s without a message after which a channel or tube counts as empty
MOST = 1_000_000_000
MAX_IN_FLIGHT = 200
DETAILS = """
The channel is created if it does not exist, and then gets messages from now on. Ctrl-C ends the command, and messages that were
not printed are delivered to others at once.

examples:
  penstock sub orders tail#ephemeral
  penstock sub orders mail -n 1 --no-ack
  penstock sub orders mail --until-empty --json > orders.jsonl
"""
RESERVE_DETAILS = """
examples:
  penstock reserve pictures -n 1
  penstock reserve pictures --until-empty --release
"""


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    sub = make_command(commands, "sub", _sub, "print the messages of a channel as they come, and finish them", DETAILS)
    for name in ("topic", "channel"):
        sub.add_argument(name, metavar=name.upper())
    sub.add_argument(
        "--no-ack", action="store_true", help="do not finish messages: they are delivered again at the end"
    )
    sub.add_argument("-0", "--null", action="store_true", help="print NUL after each message, not a line feed")
    add_address(sub)
    reserve = make_command(
        commands, "reserve", _reserve, "print the jobs of tubes as they come, and delete them", RESERVE_DETAILS
    )
    reserve.add_argument("tubes", nargs="+", metavar="TUBE")
    end = reserve.add_mutually_exclusive_group()
    end.add_argument("--release", action="store_true", help="release the jobs at the end, do not delete them")
    end.add_argument("--bury", action="store_true", help="bury the jobs, do not delete them")
    add_address(reserve)
    add_setting(reserve, "job_address")
    for command in (sub, reserve):
        command.add_argument("-n", "--count", type=whole_number(1, MOST), default=0, metavar="N", help="end after N")
        command.add_argument("--until-empty", action="store_true", help="end when none came for a second")
        command.add_argument("--json", action="store_true", help="print a JSON object for each, on a line")


# Messages


def _sub(arguments: argparse.Namespace) -> int:
    form = _as_json if arguments.json else _with_nul if arguments.null else _line
    context, out = arguments.used_context, sys.stdout.fileno()
    nodes = consumer_addresses(arguments)
    most = min(MAX_IN_FLIGHT, arguments.count or MAX_IN_FLIGHT)
    try:
        with (
            Interrupts() as interrupts,
            Consumer(
                arguments.topic, arguments.channel, nodes, context.lookupd_http_address, most, settings_of(context)
            ) as consumer,
            selectors.DefaultSelector() as selector,
            ExitStack() as stack,
        ):
            selector.register(interrupts, selectors.EVENT_READ)
            selector.register(consumer, selectors.EVENT_READ)
            kept: list[Message] = []
            printer = Printer(
                lambda data: write_unless_interrupted(out, data, interrupts), arguments.count, False, form,
                kept.append if arguments.no_ack else Message.finish,
            )  # fmt: skip
            stack.callback(_requeue, printer, kept)  # also after a pipe has closed
            _print_all(consumer, printer, interrupts, selector, EMPTY_AFTER if arguments.until_empty else 0.0)
            consumer.pause()
    except (ClientError, ValueError) as error:
        raise CommandError(str(error)) from None
    return ExitCode.INTERRUPTED if interrupts.received else ExitCode.DONE


def _requeue(printer: Printer, kept: list[Message]) -> None:
    """Requeue the messages that were not printed, and those of --no-ack, so that other consumers get them at once."""
    printer.requeue_unprinted()
    for message in kept:
        message.requeue(0)


def _print_all(
    consumer: Consumer, printer: Printer, interrupts: Interrupts, selector: selectors.BaseSelector, idle: float
) -> None:
    """Print until the limit or a signal, or until no message came for `idle` s (0: that does not end it)."""
    last = time.monotonic()
    while not interrupts.received and not printer.is_full:
        batch = consumer.poll(0)
        printer.print(consumer.topic, batch)
        consumer.flush()
        now = time.monotonic()
        last = now if batch else last
        if idle and now - last >= idle:
            return
        selector.select(0 if printer.is_full else min(TICK, idle or TICK))


def _line(message: Message) -> bytes:
    return body_line(message.body)


def _with_nul(message: Message) -> bytes:
    return body_line(message.body, b"\0")


def _as_json(message: Message) -> bytes:
    """Return a line with a message as JSON, in the form of `penstock peek --json`."""
    fields: dict[str, Any] = {"id": message.id.decode(), "timestamp": message.timestamp, "attempts": message.attempts}
    headers = {"headers": dict(message.headers)} if message.headers else {}
    return json.dumps(fields | headers | _body(message.body)).encode() + b"\n"


def _body(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


# Jobs


def _reserve(arguments: argparse.Namespace) -> int:
    context, count, kept = arguments.used_context, 0, list[Job]()
    settings = JobsSettings(retry_s=0, tls=job_tls(context))
    try:
        with Jobs(job_address(context), settings, watch=arguments.tubes) as jobs:
            for job in jobs.reserve_each(EMPTY_AFTER if arguments.until_empty else None):
                _write(_job_as_json(job) if arguments.json else body_line(job.body))
                count += 1
                if arguments.release:
                    kept.append(job)
                elif arguments.bury:
                    job.bury()
                else:
                    job.delete()
                if count == arguments.count:
                    break
            for job in kept:
                job.release()
    except (JobsError, ValueError) as error:
        raise jobs_failure(context, error) from None
    return ExitCode.DONE


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


def _job_as_json(job: Job) -> bytes:
    return json.dumps({"id": job.id} | _body(job.body)).encode() + b"\n"
