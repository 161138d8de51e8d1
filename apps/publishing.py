"""`penstock pub` and `penstock put`: publish messages, and put jobs, from arguments, files or standard input."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from secrets import token_hex

import httpx

from apps.client_context import job_address, job_tls, jobs_failure, node_addresses, settings_of
from apps.interrupts import Interrupts
from apps.node_client import add_address, open_client, why_refused
from apps.to_nsq import Pump, Splitter
from penstock.client import Consumer, Producer
from penstock.jobs import Jobs, JobsError, JobsSettings
from penstock.protocol import is_valid_name
from penstock.sansio.errors import ClientError
from shared.counted import counted
from shared.terminal.commands import (
    CommandError,
    Commands,
    ExitCode,
    WrongArguments,
    make_command,
    milliseconds,
    seconds,
    whole_number,
)
from shared.terminal.context import add_setting
from shared.terminal.output import body_line

READ_SIZE = 262_144  # bytes
MOST_RATE = 10_000_000  # messages a second
DETAILS = """
Without BODY and --file, each line of standard input is a message. A line that the end of the input cuts is published, too. The
exit code is 0 if nsqd has answered OK for every message.

examples:
  penstock pub orders '{"id": 17}'
  tail -F access.log | penstock pub access --rate 100
  penstock pub orders --file order.json --header source=import --delay 1m
  penstock pub prices 'EUR to USD' --reply-within 10s
"""
PUT_DETAILS = """
Without BODY and --file, each line of standard input is a job.

examples:
  penstock put pictures 'resize 17' --ttr 300
"""


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser."""
    pub = make_command(commands, "pub", _pub, "publish messages to a topic", DETAILS)
    pub.add_argument("topic", metavar="TOPIC")
    _add_bodies(pub)
    pub.add_argument(
        "--rate", type=whole_number(1, MOST_RATE), default=0, metavar="N", help="at most N messages per second"
    )
    pub.add_argument(
        "--delay", type=milliseconds, default=0, metavar="DURATION", help="delay of the delivery, such as 10m"
    )
    pub.add_argument("--key", metavar="KEY", help="publish one message once, however often this is tried with the key")
    pub.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="header (may be given multiple times)"
    )
    pub.add_argument(
        "--reply-within",
        type=seconds,
        default=0.0,
        metavar="DURATION",
        help="wait for an answer to one message, and print it; its header reply-to names the topic of the answer",
    )
    add_address(pub)
    put = make_command(commands, "put", _put, "put jobs into a tube of beanstalkd's clients", PUT_DETAILS)
    put.add_argument("tube", metavar="TUBE")
    _add_bodies(put)
    number = whole_number(0, (1 << 32) - 1)
    for name, default, what in (("priority", 0x7FFFFFFF, "a lower one comes first"), ("delay", 0, "seconds until it is ready"),
                                ("ttr", 120, "seconds that a worker may take")):  # fmt: skip
        put.add_argument(f"--{name}", type=number, default=default, metavar="N", help=f"{what} (default: {default})")
    add_address(put)
    add_setting(put, "job_address")


def _add_bodies(command: argparse.ArgumentParser) -> None:
    command.add_argument("bodies", nargs="*", default=[], metavar="BODY", help="a message each")
    command.add_argument("--file", action="append", default=[], metavar="FILE", help="a file's content is one message")
    command.add_argument(
        "-0", "--null", action="store_true", help="standard input has NUL between messages, not line feeds"
    )
    command.add_argument("--json", action="store_true", help="print a JSON object with the number of messages")


def _given(arguments: argparse.Namespace) -> list[bytes]:
    """Return the bodies in arguments and files. Raises CommandError."""
    try:
        files = [Path(name).read_bytes() for name in arguments.file]
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    return [*(body.encode("utf-8", "surrogateescape") for body in arguments.bodies), *files]


def _records(arguments: argparse.Namespace) -> Iterator[bytes]:
    """Yield the bodies in arguments and files, or else the records of standard input. Raises CommandError."""
    if given := _given(arguments):
        yield from given
        return
    splitter, stdin = _splitter(arguments), sys.stdin.fileno()
    while chunk := os.read(stdin, READ_SIZE):
        yield from splitter.feed(chunk)
    yield from splitter.end()


def _only_record(arguments: argparse.Namespace, flag: str) -> list[bytes]:
    """Return the one body, in a list, that a command with this flag publishes. Raises CommandError."""
    bodies = list(islice(_records(arguments), 2))
    if len(bodies) != 1:
        raise WrongArguments(f"{flag} is for one message")
    return bodies


def _splitter(arguments: argparse.Namespace) -> Splitter:
    return Splitter(b"\0" if arguments.null else b"\n")


def _report(arguments: argparse.Namespace, count: int, what: str) -> None:
    if arguments.json:
        print(json.dumps({what: count}))
    else:
        print(f"{count:,} {what}", file=sys.stderr)


# Messages


def _pub(arguments: argparse.Namespace) -> int:
    if not is_valid_name(arguments.topic):
        raise WrongArguments(f"{arguments.topic[:200]!r} is not a legal name of a topic")
    if arguments.reply_within:
        return _pub_and_wait(arguments)
    if arguments.key or arguments.header or arguments.delay:
        return _pub_over_http(arguments)
    given, context = _given(arguments), arguments.used_context
    try:
        with Producer(node_addresses(arguments), settings_of(context)) as producer, Interrupts() as interrupts:
            pump = Pump(arguments.topic, [producer], _splitter(arguments), arguments.rate, "penstock pub")
            if given:
                pump.add(given)
            pump.run(sys.stdin.fileno() if not given else -1, interrupts)
    except (ClientError, ValueError) as error:
        raise CommandError(str(error)) from None
    _report(arguments, pump.published, "published")
    return ExitCode.INTERRUPTED if pump.is_interrupted else ExitCode.DONE


def _pub_over_http(arguments: argparse.Namespace) -> int:
    """Publish with what NSQ's protocol lacks: keys and headers; a request for each message."""
    headers, query, count, known = message_headers(arguments.header), _query(arguments), 0, 0
    with open_client(arguments) as client:
        for body in _only_record(arguments, "--key") if arguments.key else _records(arguments):
            known += _post(client, query, headers, body, arguments.nsqd_http_address)
            count += 1
    if known:
        print(f"{counted(known, 'duplicate')}: nsqd has the same message already", file=sys.stderr)
    _report(arguments, count - known, "published")
    return ExitCode.DONE


def _pub_and_wait(arguments: argparse.Namespace) -> int:
    """Publish one message, and print the first message that a consumer publishes to the topic in its header `reply-to`.

    That topic is made for this answer, on all nodes, and is gone with the connections to it.
    """
    (body,) = _only_record(arguments, "--reply-within")
    topic = f"reply-{token_hex(16)}#ephemeral"
    headers = message_headers([*arguments.header, f"reply-to={topic}"])
    nodes, settings = node_addresses(arguments), settings_of(arguments.used_context)
    try:
        with Consumer(topic, "reply#ephemeral", nodes, (), 1, settings) as consumer, open_client(arguments) as client:
            _post(client, _query(arguments), headers, body, arguments.nsqd_http_address)
            for answer in consumer.poll(arguments.reply_within):
                sys.stdout.buffer.write(body_line(answer.body))
                answer.finish()
                consumer.flush()
                return ExitCode.DONE
    except (ClientError, ValueError) as error:
        raise CommandError(str(error)) from None
    raise CommandError(f"published, but no answer came within {arguments.reply_within:g} s")


def _query(arguments: argparse.Namespace) -> dict[str, str | int]:
    given = {"defer": arguments.delay or None, "key": arguments.key}
    return {"topic": arguments.topic} | {name: value for name, value in given.items() if value}


def message_headers(given: list[str]) -> dict[str, str]:
    """Return the HTTP headers by which nsqd gives a message its headers. Raises WrongArguments."""
    headers = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise WrongArguments(f"--header expects NAME=VALUE, not {one[:100]!r}")
        headers[f"X-Nsq-Header-{name}"] = value
    return headers


def _post(client: httpx.Client, query: dict[str, str | int], headers: dict[str, str], body: bytes, address: str) -> int:
    """Publish a message. Returns 1 if it is a duplicate, otherwise 0. Raises CommandError, WrongArguments, httpx.HTTPError."""
    try:
        answer = client.post("/pub", params=query, headers=headers, content=body)
    except (ValueError, UnicodeError) as error:  # of a header that HTTP cannot carry
        raise WrongArguments(str(error)) from None
    if answer.status_code != 200:
        raise CommandError(why_refused(answer, {}, address))
    return int("X-Nsq-Duplicates" in answer.headers)


# Jobs


def _put(arguments: argparse.Namespace) -> int:
    context, count = arguments.used_context, 0
    try:
        with Jobs(job_address(context), JobsSettings(retry_s=0, tls=job_tls(context)), use=arguments.tube) as jobs:
            for body in _records(arguments):
                jobs.put(body, arguments.priority, arguments.delay, arguments.ttr)
                count += 1
    except (JobsError, ValueError) as error:
        raise jobs_failure(context, error, count) from None
    _report(arguments, count, "put")
    return ExitCode.DONE
