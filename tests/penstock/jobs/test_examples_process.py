"""The examples in the docstrings of penstock.jobs run, against a real beanstalkd: `await` ones on asyncio and trio."""

import ast
import doctest
import inspect
import io
from collections.abc import Iterator
from contextlib import redirect_stdout
from itertools import count
from typing import Any

import anyio
import pytest

import penstock.jobs
from penstock.jobs import AsyncJobs, Jobs
from penstock.protocol.beanstalk import Reply
from tests.processes.test_beanstalkd import Beanstalkd

pytestmark = pytest.mark.process


def public(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield a class, and its methods and properties, inherited ones included."""
    yield kind.__name__, kind
    for base in kind.__mro__:
        for name, member in vars(base).items() if base.__module__.startswith("penstock.jobs") else ():
            if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                yield f"{base.__name__}.{name}", member


NUMBERS = count()  # of tubes: a repetition has another one
NAMES = dict(one for name in penstock.jobs.__all__ for one in public(getattr(penstock.jobs, name)))
EXAMPLES = {name: member for name, member in NAMES.items() if ">>>" in (inspect.getdoc(member) or "")}


def test_every_public_name_but_errors_has_an_example() -> None:
    errors = {name for name, member in NAMES.items() if inspect.isclass(member) and issubclass(member, Exception)}
    assert sorted(NAMES.keys() - EXAMPLES.keys() - errors) == []
    assert len(EXAMPLES) > 50


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Beanstalkd() as daemon:
        yield ":".join(map(str, daemon.address))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(name: str, address: str) -> None:
    text = inspect.getdoc(EXAMPLES[name]) or ""
    steps = doctest.DocTestParser().get_examples(text)
    known = {**vars(penstock.jobs), "anyio": anyio, "Reply": Reply, "address": address}
    if "Async" not in name and not any(word in text for word in ("await ", "async ")):
        tube = f"{name}.{next(NUMBERS)}"
        with Jobs(address, use=tube, watch=[tube]) as jobs:
            known["jobs"] = jobs
            for step in steps:
                with redirect_stdout(io.StringIO()) as output:
                    show(evaluate(step, known))
                assert output.getvalue() == step.want, step.source
        return
    for backend in ("asyncio", "trio"):
        anyio.run(run_async, steps, {**known}, f"{name}.{next(NUMBERS)}", backend=backend)


async def run_async(steps: list[doctest.Example], known: dict[str, Any], tube: str) -> None:
    async with AsyncJobs(known["address"], use=tube, watch=[tube]) as jobs:
        known["jobs"] = jobs
        for step in steps:
            with redirect_stdout(io.StringIO()) as output:
                value = evaluate(step, known)
                show(await value if inspect.iscoroutine(value) else value)
            assert output.getvalue() == step.want, step.source


def evaluate(step: doctest.Example, names: dict[str, Any]) -> Any:
    """Execute one step of an example, and return the value of an expression, or a coroutine with it."""
    body = ast.parse(step.source).body
    mode = "eval" if len(body) == 1 and isinstance(body[0], ast.Expr) else "exec"
    return eval(compile(step.source, "<example>", mode, ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True), names)


def show(value: object) -> None:
    if value is not None:
        print(repr(value))
