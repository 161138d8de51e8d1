"""The clients of NSQ's and beanstalkd's protocols for a command: their addresses, TLS and token, from the context."""

from __future__ import annotations

import argparse
import ssl
import sys
from typing import Any

import httpx

from apps.cluster import tcp_addresses
from apps.node_client import open_client, url_of
from penstock.jobs import ConnectionLost
from penstock.sansio.settings import CLIENT_NAME, Settings
from shared.counted import counted
from shared.http.bounded import AnswerError, parse_object
from shared.terminal.commands import CommandError, NoAnswer
from shared.terminal.context import JOBS, Context, start_advice
from shared.terminal.token import token_of
from shared.tls.client import why_failed
from shared.version import NSQ_VERSION

MOST_ANSWER = 8 << 20  # bytes of an answer about nodes
MOST_SHOWN = 3  # addresses without an answer in the line of an error


def settings_of(context: Context) -> Settings:
    """Return the settings of a client: TLS if the context has an authority, and its token. Raises CommandError."""
    token = token_of(context.auth_token_file, context.auth_token_command)
    return Settings(
        user_agent=f"penstock/{NSQ_VERSION} {CLIENT_NAME}", tls_v1=bool(context.tls_root_ca_file),
        tls_root_ca_file=context.tls_root_ca_file, tls_cert=context.tls_cert, tls_key=context.tls_key, auth_secret=token,
        lookupd_authorization=True,
    )  # fmt: skip


def node_addresses(arguments: argparse.Namespace) -> list[str]:
    """Return the TCP addresses of the nodes of the context; a daemon that gives no answer is reported. Raises NoAnswer."""
    context = arguments.used_context
    found: dict[str, None] = {}
    failures: list[str] = []

    def ask(address: str, path: str) -> dict[str, Any]:
        try:
            answer = client.get(url_of(address) + path).raise_for_status()
            return parse_object(answer.content[:MOST_ANSWER], 8 * MOST_ANSWER)
        except (httpx.HTTPError, httpx.InvalidURL, AnswerError) as error:
            failures.append(f"{address} gives no answer: {why_failed(error)}")
            return {}

    with open_client(arguments) as client:
        for lookupd in context.lookupd_http_address:
            found |= dict.fromkeys(tcp_addresses(lookupd, ask(lookupd, "/nodes")))
        for node in context.nsqd_http_address if not found else ():
            if answer := ask(node, "/info"):
                found |= dict.fromkeys(tcp_addresses(node, {"producers": [answer]}))
    if not found:
        remedy = start_advice(*context.lookupd_http_address, *context.nsqd_http_address)
        raise NoAnswer("; ".join([*failures[:MOST_SHOWN], remedy]))
    for failure in failures:
        print(f"penstock: {failure}", file=sys.stderr)
    return list(found)


def consumer_addresses(arguments: argparse.Namespace) -> list[str]:
    """Return the addresses that a consumer has beside nsqlookupd: none if the context has nothing else. Raises NoAnswer."""
    context = arguments.used_context
    return node_addresses(arguments) if context.nsqd_http_address or not context.lookupd_http_address else []


def job_address(context: Context) -> str:
    """Return the address for clients of beanstalkd."""
    return context.job_address or JOBS


def jobs_failure(context: Context, error: Exception, done: int = 0) -> CommandError:
    """Return the error of a command about jobs: NoAnswer if nothing can be reached. `done`: jobs that were put before."""
    address = job_address(context)
    if isinstance(error, ConnectionLost) and not done:
        return NoAnswer(f"cannot reach {address}: {why_failed(error)}: {start_advice(address)}")
    return CommandError(f"{address}: {error}" + (f"; {counted(done, 'job')} put before" if done else ""))


def job_tls(context: Context) -> ssl.SSLContext | None:
    """Return the authority that a connection of beanstalkd's protocol trusts; None: there is no TLS. Raises CommandError."""
    if not context.tls_root_ca_file:
        return None
    try:
        return ssl.create_default_context(cafile=context.tls_root_ca_file)
    except OSError as error:
        raise CommandError(f"{context.tls_root_ca_file}: {error}") from None
