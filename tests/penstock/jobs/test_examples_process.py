"""The examples in the docstrings of penstock.jobs run, against a real beanstalkd: `await` ones on asyncio and trio."""

import ast
import doctest
import importlib
import inspect
import io
import pkgutil
from collections.abc import Iterator
from contextlib import redirect_stdout
from types import CodeType, ModuleType
from typing import Any

import anyio
import pytest

import penstock.jobs
from penstock.jobs import AsyncJobs, Jobs
from penstock.protocol.beanstalk import Reply
from tests.processes.test_beanstalkd import Beanstalkd

pytestmark = pytest.mark.process

MODULES = [
    importlib.import_module(f"penstock.jobs.{module.name}") for module in pkgutil.iter_modules(penstock.jobs.__path__)
]


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield what the module defines and does not hide, methods and properties of classes included."""
    for name, value in vars(module).items():
        if name.startswith("_") or getattr(value, "__module__", "") != module.__name__:
            continue
        if inspect.isclass(value) or inspect.isfunction(value):
            yield f"{module.__name__}.{name}", value
        if inspect.isclass(value):
            for method, one in vars(value).items():
                if not method.startswith("_") and (inspect.isfunction(one) or isinstance(one, property)):
                    yield f"{module.__name__}.{name}.{method}", one


EXAMPLES = {name: one for module in MODULES for name, one in public(module) if ">>>" in (inspect.getdoc(one) or "")}
INSIDE = ("penstock.jobs.calls.", "penstock.jobs.session.", "penstock.jobs.errors.refusal")  # not for users


def test_every_public_name_has_an_example() -> None:
    names = {name for module in MODULES for name, _ in public(module) if not name.startswith(INSIDE)}
    assert sorted(names - EXAMPLES.keys()) == []
    assert len(EXAMPLES) > 90


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Beanstalkd() as daemon:
        yield ":".join(map(str, daemon.address))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, address: str) -> None:
    text = inspect.getdoc(EXAMPLES[name]) or ""
    parts = doctest.DocTestParser().get_examples(text)
    tubes: dict[str, Any] = {"use": name[-200:], "watch": [name[-200:]]}
    module = importlib.import_module(".".join(name.split(".")[:3]))
    known = {**vars(penstock.jobs), **vars(module), "anyio": anyio, "Reply": Reply, "address": address}
    if "Async" not in name and not any(word in text for word in ("await ", "async ", "clone")):
        with Jobs(address, **tubes) as jobs:
            for part in parts:
                found = run_step(part, known | {"jobs": jobs}, known)
                assert found == part.want, part.source
            return
    for backend in ("asyncio", "trio"):
        anyio.run(run_async, parts, {**known}, address, {**tubes, "use": f"{backend[0]}{name[-199:]}"}, backend=backend)


def compiled(part: doctest.Example, mode: str) -> CodeType:
    code: CodeType = compile(part.source, "<example>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


def run_step(part: doctest.Example, names: dict[str, Any], kept: dict[str, Any]) -> str:
    """Run one step and return what it prints, as a Python shell does; new names go into `kept`."""
    said = io.StringIO()
    with redirect_stdout(said):
        if is_expression(part):
            value = eval(compiled(part, "eval"), names)
            if value is not None:
                print(repr(value))
        else:
            exec(compiled(part, "exec"), names)
    kept.update(names)
    return said.getvalue()


async def run_async(parts: list[doctest.Example], names: dict[str, Any], address: str, tubes: dict[str, Any]) -> None:
    tubes["watch"] = [tubes["use"]]
    async with AsyncJobs(address, **tubes) as jobs:
        names["jobs"] = jobs
        for part in parts:
            said = io.StringIO()
            with redirect_stdout(said):
                value = eval(compiled(part, "eval" if is_expression(part) else "exec"), names)
                if inspect.iscoroutine(value):
                    value = await value
                if value is not None:
                    print(repr(value))
            assert said.getvalue() == part.want, part.source


def is_expression(part: doctest.Example) -> bool:
    body = ast.parse(part.source).body
    return len(body) == 1 and isinstance(body[0], ast.Expr)
