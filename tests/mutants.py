"""`python -m tests.mutants`: plant bugs in the product, one at a time, and list those that no unit test finds.

Bugs are drawn by a seed, the same number in each part of the product. One run under coverage records which tests execute
which line. Then one process imports everything and collects the unit tests, and forks for each bug: the child replaces the
code of the function and runs the tests that execute the line until one fails. No file of the product is changed.
build/mutants keeps what is known, so that an interrupted run continues; remove it when the code has changed.
"""

import argparse
import ast
import gc
import io
import json
import os
import random
import resource
import signal
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType

import coverage
import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "mutants"
PRODUCT = ["admin", "apps", "lookupd", "nsqd", "penstock", "pipeline", "pyspark_nsq", "shared"]
NO_UNITS = ("processes", "clients", "simulation")  # directories of tests/, as in tests/conftest.py
PARTS = ("nsqd/core", "nsqd/protocols", "nsqd/storage", "nsqd/cluster", "nsqd/http", "admin")
TEST_CPU = 10  # s that one test may compute, and
TEST_TIME = 120  # s that it may take: one that needs more has found the bug, which is an endless loop
BUG_CPU = 20  # s for all tests of a bug; they are sorted so that those that find it come first
MEMORY = 6 << 30  # bytes
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A bug: the `number`-th that a file can have."""

    path: str  # of the file, from the root
    number: int
    line: int  # the first of the statement
    last: int
    what: str  # is changed


@dataclass(frozen=True)
class Result:
    """Whether the tests found a bug."""

    mutant: Mutant
    end: str  # "killed", "survived", or "never executed" by a unit test
    killer: str = ""  # the test that failed


def _dead(node: ast.stmt) -> ast.stmt:
    """Return a statement that does nothing, in a function that still has the variables of `node`."""
    return ast.copy_location(ast.If(ast.Constant(False), [node], []), node)


class _Planter(ast.NodeTransformer):
    """Lists the places within functions where a file can have a bug, and changes one of them."""

    def __init__(self, number: int = -1) -> None:
        self.places: list[tuple[int, int, str]] = []  # first and last line of the statement, what is changed
        self._number = number
        self._lines: tuple[int, int] | None = None  # of the statement; None: not in a function

    def _is_chosen(self, what: str) -> bool:
        if self._lines is None:
            return False
        self.places.append((*self._lines, what))
        return len(self.places) - 1 == self._number

    def visit(self, node: ast.AST) -> ast.AST:
        before = self._lines
        if isinstance(node, ast.stmt) and before is not None:
            body = getattr(node, "body", None) or getattr(node, "cases", None)
            last = (node.end_lineno or 0) if not body else getattr(body[0], "lineno", node.lineno + 1) - 1
            self._lines = node.lineno, max(node.lineno, last)
        try:
            return super().visit(node)  # type: ignore[no-any-return]
        finally:
            self._lines = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before, self._lines = self._lines, (node.lineno, node.lineno)
        node.body = [self.visit(one) for one in node.body]  # type: ignore[misc]
        self._lines = before
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Call) and self._is_chosen(f"without {ast.unparse(node.value)[:60]}"):
            return _dead(node)
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if self._is_chosen(f"without {ast.unparse(node)[:60]}"):
            return _dead(node)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return node
        if self._is_chosen(f"if not {ast.unparse(node.test)[:60]}"):
            node.test = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        node.ops[0] = self._swapped(node.ops[0], node)  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        node.op = self._swapped(node.op, node)  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if not isinstance(node.left, ast.Constant) or not isinstance(node.left.value, str):
            node.op = self._swapped(node.op, node)  # type: ignore[assignment]
        return self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> ast.AST:
        return ast.copy_location(self._swapped(node, node), node)

    visit_Continue = visit_Break  # type: ignore[assignment]

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            if self._is_chosen(f"{node.value} -> {not node.value}"):
                return ast.copy_location(ast.Constant(not node.value), node)
        elif isinstance(node.value, int) and self._is_chosen(f"{node.value} -> {node.value + 1}"):
            return ast.copy_location(ast.Constant(node.value + 1), node)
        return node

    def _swapped(self, operator: ast.AST, node: ast.AST) -> ast.AST:
        other = SWAPS.get(type(operator))
        if other is None:
            return operator
        what = f"{type(operator).__name__} -> {other.__name__} in {ast.unparse(node)[:60]}"
        return other() if self._is_chosen(what) else operator  # type: ignore[attr-defined]


def drawn(seed: int, count: int) -> list[Mutant]:
    """Draw `count` bugs, as many in each part."""
    random_ = random.Random(seed)
    found: list[Mutant] = []
    for part in PARTS:
        places: list[Mutant] = []
        for path in sorted((ROOT / part).rglob("*.py")):
            planter = _Planter()
            planter.visit(ast.parse(path.read_text()))
            name = path.relative_to(ROOT).as_posix()
            places += (Mutant(name, number, *place) for number, place in enumerate(planter.places))
        found += random_.sample(places, count // len(PARTS))
    return found


# ---- the bug in the process of the tests ----


def with_bug(path: str, number: int) -> CodeType:
    """Return the code of a module with one of its bugs; -1: without any."""
    file = ROOT / path
    tree = _Planter(number).visit(ast.parse(file.read_text()))
    return compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True)


def codes(code: CodeType) -> Iterator[tuple[tuple[str, int], CodeType]]:
    """Yield all code within some code, by its name and first line."""
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield (one.co_qualname, one.co_firstlineno), one
            yield from codes(one)


def plant(mutant: Mutant) -> None:
    """Replace the code of the function that has the bug, wherever the function is referenced."""
    sound = dict(codes(with_bug(mutant.path, -1)))
    changed = {at: code for at, code in codes(with_bug(mutant.path, mutant.number)) if code != sound[at]}
    file, count = str(ROOT / mutant.path), 0
    gc.unfreeze()  # tests/conftest.py has frozen what is imported, and frozen objects are not listed
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename == file:
            code = function.__code__
            if new := changed.get((code.co_qualname, code.co_firstlineno)):
                function.__code__ = new
                count += 1
    gc.freeze()
    assert count, f"no function has {mutant}"


# ---- sessions of pytest ----


class _Contexts:
    """Shows coverage which test runs, and collects those that fail."""

    def __init__(self, measured: coverage.Coverage) -> None:
        self._measured = measured
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._measured.switch_context(item.nodeid)
        return (yield)


class _Instead:
    """Does some work with the collected tests instead of running them all."""

    def __init__(self, work: Callable[[pytest.Session], None]) -> None:
        self._work = work

    def pytest_configure(self) -> None:
        """Do not let hypothesis keep or simplify what shows a planted bug."""
        from hypothesis import Phase, settings  # pytest has to import it first, to rewrite its assertions

        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutants", settings.get_profile("penstock"), database=None, phases=phases)
        settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("a test file cannot be imported")
        self._work(session)
        return True


def run_pytest(plugin: object, files: Sequence[str] = ("tests",)) -> int:
    """Run pytest in this process, without time limits of its own, and return its exit code."""
    return pytest.main(
        ["--unit", "-q", "--tb=no", "-s", "-p", "no:xdist", "-p", "no:cacheprovider", "-o", "timeout=0", *files],
        plugins=[plugin],
    )


def first_failure(session: pytest.Session, tests: Sequence[str]) -> str:
    """Run tests in this order, and return the first that fails, or "". A test that takes too long ends the process."""
    items = {item.nodeid: item for item in session.items}
    chosen = [items[test] for test in tests if test in items]
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_PROF, TEST_CPU)
        signal.alarm(TEST_TIME)
        try:
            item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        except KeyboardInterrupt:  # trio raises it for some bugs
            return item.nodeid
        if session.testsfailed:
            return item.nodeid
        if time.process_time() > BUG_CPU:
            break
    return ""


def planted_failure(mutant: Mutant, session: pytest.Session, tests: Sequence[str]) -> str:
    """Plant a bug into what is imported, and return the first test that fails."""
    plant(mutant)
    return first_failure(session, tests)


# ---- the command ----


def in_child(work: Callable[[], str]) -> tuple[int, int]:
    """Call `work` in a forked process without output. Return its id, and a descriptor to read what it returns."""
    receiver, sender = os.pipe()
    if pid := os.fork():
        os.close(sender)
        return pid, receiver
    try:
        errors = os.dup(2)
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        os.write(sender, work().encode())
        os._exit(0)
    except BaseException:  # nothing of this process's stack may run in the child; its parent sees the status
        os.write(errors, traceback.format_exc().encode())
    finally:
        os._exit(1)


def trials(todo: Iterable[tuple[Mutant, Callable[[], str]]], workers: int) -> Iterator[Result]:
    """Try bugs in children, `workers` at a time. Each callable returns the test that failed, or ""."""
    running: dict[int, tuple[Mutant, int]] = {}
    rest = iter(todo)
    while True:
        for mutant, work in islice(rest, workers - len(running)):
            pid, receiver = in_child(work)
            running[pid] = mutant, receiver
        if not running:
            return
        pid, status = os.wait()
        mutant, receiver = running.pop(pid)
        with open(receiver) as file:
            killer = file.read()
        if os.WIFSIGNALED(status):
            killer = "no end"
        elif status:
            raise RuntimeError(f"cannot try {mutant}")
        yield Result(mutant, "killed" if killer else "survived", killer)


class Executed:
    """Which unit tests execute which lines of the product."""

    def __init__(self, data: Path) -> None:
        self._data = coverage.CoverageData(str(data))
        self._data.read()
        self._sizes = Counter[str]()  # lines that a test executes
        for file in self._data.measured_files():
            for contexts in self._data.contexts_by_lineno(file).values():
                self._sizes.update(contexts)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests of a bug's line: first those of the module's own file, then those that execute the fewest lines."""
        by_line = self._data.contexts_by_lineno(str(ROOT / mutant.path))
        contexts = {one for line in range(mutant.line, mutant.last + 1) for one in by_line.get(line, ())}
        own = f"test_{Path(mutant.path).stem}.py"
        return sorted(contexts - {""}, key=lambda one: (own not in one, self._sizes[one], one))


def measure(data: Path, workers: int) -> None:
    """Run all unit tests under coverage, with the tests as contexts, and print how much of the product they execute."""
    found = sorted(file.relative_to(ROOT) for file in (ROOT / "tests").rglob("test_*.py"))
    files = [str(file) for file in found if file.parts[1] not in NO_UNITS]  # a file that is named is not left out
    parts = [f"{data}.{number}" for number in range(workers)]

    def record(number: int) -> str:
        measured = coverage.Coverage(data_file=parts[number], branch=True, source=PRODUCT)
        measured.start()
        contexts = _Contexts(measured)
        code = run_pytest(contexts, files[number::workers])
        assert code == 0, f"without a bug these tests fail: {', '.join(contexts.failed)}"
        measured.stop()
        measured.save()
        return ""

    for pid in [in_child(partial(record, number))[0] for number in range(workers)]:
        assert os.waitpid(pid, 0)[1] == 0, "coverage cannot be measured"
    combined = coverage.Coverage(data_file=data, branch=True, source=PRODUCT)
    combined.combine(parts)
    combined.save()
    print(f"{combined.report(file=io.StringIO()):.1f} % of the lines and branches are executed")


def try_all(todo: Sequence[Mutant], executed: Executed, workers: int, done: Callable[[Result], None]) -> None:
    """Try bugs, and call `done` with each result."""
    tests = {mutant: executed.tests(mutant) for mutant in todo}
    for mutant in todo:
        if not tests[mutant]:
            done(Result(mutant, "never executed"))

    def fork_for_each(session: pytest.Session) -> None:
        reached = (one for one in todo if tests[one])
        for result in trials(((one, partial(planted_failure, one, session, tests[one])) for one in reached), workers):
            done(result)

    run_pytest(_Instead(fork_for_each))


def table(results: Sequence[Result]) -> str:
    """Return how many bugs were found in each part, and those that were not."""
    lines = ["| part | bugs | killed | survived | never executed |", "|---|---|---|---|---|"]
    for part in PARTS:
        ends = Counter(result.end for result in results if result.mutant.path.startswith(f"{part}/"))
        lines.append(
            f"| {part} | {ends.total()} | "
            + " | ".join(str(ends[end]) for end in ("killed", "survived", "never executed"))
            + " |"
        )
    missed = sorted(
        (one.mutant.path, one.mutant.line, one.mutant.what, one.end) for one in results if one.end != "killed"
    )
    return "\n".join([*lines, "", *(f"{path}:{line}: {what} ({end})" for path, line, what, end in missed)])


def main() -> None:
    """Try the bugs that have not been tried, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="bugs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes at a time (default: %(default)s)")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    KEPT.mkdir(parents=True, exist_ok=True)
    data = KEPT / "coverage"
    if not data.exists():
        measure(data, arguments.workers)
    results_file = KEPT / f"results-{arguments.seed}.jsonl"
    lines = results_file.read_text().splitlines() if results_file.exists() else []
    results = [Result(Mutant(*mutant), end, killer) for mutant, end, killer in map(json.loads, lines)]
    known = {result.mutant for result in results}
    todo = [mutant for mutant in drawn(arguments.seed, arguments.count) if mutant not in known]

    def done(result: Result) -> None:
        results.append(result)
        mutant = result.mutant
        file.write(json.dumps([astuple(mutant), result.end, result.killer]) + "\n")
        file.flush()
        print(f"{len(results)}/{arguments.count} {result.end}: {mutant.path}:{mutant.line} {mutant.what}", flush=True)

    with tempfile.TemporaryDirectory() as directory, results_file.open("a") as file:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = directory  # of the tests' temporary directories
        try_all(todo, Executed(data), arguments.workers, done)
    print(table(results))


if __name__ == "__main__":
    main()
