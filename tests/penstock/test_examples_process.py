"""Every public name of the clients but errors has an example in its docstring, and each example runs."""

import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType

import httpx
import pytest

from penstock import aio, client
from tests.async_tests import PATIENCE_S
from tests.cases import each
from tests.daemons import Daemon, post

EXAMPLE = re.compile(r"^( *)Example::\n\n((?:\1 .*\n|\n)+)", re.MULTILINE)
NAMES = [
    (module, name) for module in (aio, client) for name in module.__all__
    if not issubclass(getattr(module, name), Exception)
]  # fmt: skip


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the addresses that the examples name, and those of the daemons."""
    data = str(tmp_path_factory.mktemp("data"))
    with (
        Daemon("nsqlookupd") as lookupd,
        Daemon("nsqd", "-data-path", data, "-lookupd-tcp-address", lookupd.tcp, "-broadcast-address=127.0.0.1") as nsqd,
    ):
        post(nsqd, "/topic/create", topic="orders", retention="24h")
        post(nsqd, "/channel/create", topic="orders", channel="billing")
        yield {"127.0.0.1:4150": nsqd.tcp, "127.0.0.1:4151": nsqd.http, "127.0.0.1:4161": lookupd.http}


def examples(thing: object) -> list[str]:
    """Return the examples in the docstrings of a class and its public methods, or of a function."""
    members = [member for name, member in vars(thing).items() if not name.startswith("_") and callable(member)]
    texts = [inspect.getdoc(one) or "" for one in (thing, *(members if inspect.isclass(thing) else []))]
    return [textwrap.dedent(match[2]) for text in texts for match in EXAMPLE.finditer(text + "\n")]


@each("module, name", NAMES)
def test_every_name_has_an_example(module: ModuleType, name: str) -> None:
    assert examples(getattr(module, name))


@pytest.mark.process
@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{module.__name__}.{name}" for module, name in NAMES])
def test_examples_run(module: ModuleType, name: str, ports: dict[str, str]) -> None:
    httpx.post(f"http://{ports['127.0.0.1:4151']}/mpub?topic=orders", content=b"1\n2\n3").raise_for_status()
    names = {"aio": aio} | {one: getattr(aio, one) for one in aio.__all__}
    for example in examples(getattr(module, name)):
        is_async = re.search(r"^ *(await|async with) ", example, re.MULTILINE) is not None
        if not is_async:
            names |= {one: getattr(client, one) for one in client.__all__}
        for written, real in ports.items():
            example = example.replace(written, real)
        source = f"async def main():\n{textwrap.indent(example, '    ')}\n"
        exec(compile(source, name, "exec"), names)
        asyncio.run(asyncio.wait_for(names["main"](), PATIENCE_S))
