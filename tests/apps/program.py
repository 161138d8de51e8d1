"""`penstock` in the test's process: the command lines of a user, on a LocalNode that answers at every address."""

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import httpx
import pytest

from apps import node_client, read
from apps.node_client import url_of
from apps.penstock import main
from shared.terminal.context import NODE
from tests.local_node import LocalNode


@pytest.fixture
def penstock(
    node: LocalNode, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[int, bytes, str]]:
    """Return a function that runs a command, and returns its exit code, standard output and standard error."""

    def open_client(arguments: argparse.Namespace) -> AbstractContextManager[httpx.Client]:
        base = url_of(arguments.nsqd_http_address or NODE)
        return nullcontext(httpx.Client(base_url=base, transport=node.client._transport))

    def run(*arguments: str) -> tuple[int, bytes, str]:
        try:
            code: object = main(arguments)
        except SystemExit as end:  # of argparse
            code = end.code
        assert isinstance(code, int)
        out, error = capsysbinary.readouterr()
        return code, out, error.decode()

    for module in (read, node_client):
        monkeypatch.setattr(module, "open_client", open_client)
    return run
