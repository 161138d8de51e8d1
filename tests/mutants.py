"""`python -m tests.mutants`: plant bugs in the product, one at a time, and say which no unit test finds.

Bugs are drawn by a seed, as many in each of five parts. A run under coverage shows once which tests execute which line; each
bug is then tried with the tests that execute its line, until one fails. build/mutants keeps what is known, so that an
interrupted run continues; remove it when the code has changed. No file of the product is changed: the tests' process gets the
changed module from an import hook (this file is a plugin of pytest, too).
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType

import pytest

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "build" / "mutants"
PARTS = ("nsqd/core", "nsqd/protocols", "nsqd/storage", "nsqd/cluster", "nsqd/http", "admin")
MUTANT = "PENSTOCK_MUTANT"  # in the environment: "path:number", the bug to plant
LIMIT = 300  # s for the tests of one bug; one that takes longer has found it: the bug is an endless loop
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
    """What came of a bug."""

    mutant: Mutant
    end: str  # "killed", "survived", or "never executed" by a unit test
    killer: str = ""  # the test that failed


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
            return ast.copy_location(ast.Pass(), node)
        return node if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        if self._is_chosen(f"without {ast.unparse(node)[:60]}"):
            return ast.copy_location(ast.Pass(), node)
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


# ---- in the process of the tests ----


class _Planted(SourceFileLoader):
    """Loads a module with a bug."""

    number = 0

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text())
        return compile(ast.fix_missing_locations(_Planter(self.number).visit(tree)), self.path, "exec")


class _Finder(MetaPathFinder):
    """Finds the module that gets the bug."""

    def __init__(self, path: str, number: int) -> None:
        self._name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._path, self._number = ROOT / path, number

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        loader = _Planted(fullname, str(self._path))
        loader.number = self._number
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


if MUTANT in os.environ:
    _path, _, _number = os.environ[MUTANT].rpartition(":")
    sys.meta_path.insert(0, _Finder(_path, int(_number)))


class _Contexts:
    """Shows coverage which test runs."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        import coverage

        current = coverage.Coverage.current()
        assert current is not None
        current.switch_context(item.nodeid)
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Record contexts if this process runs under coverage."""
    if "COVERAGE_RUN" in os.environ:
        config.pluginmanager.register(_Contexts())


# ---- the command ----


def executed(workers: int) -> Path:
    """Return coverage's file of which tests execute which lines; make it if there is none."""
    data = KEPT / "coverage"
    if not data.exists():
        settings = KEPT / "coveragerc"
        settings.write_text(f"[run]\nsource = {','.join(sorted({part.partition('/')[0] for part in PARTS}))}\n")
        files = sorted({*(ROOT / "tests").rglob("test_*.py")})

        def record(number: int) -> int:
            environment = {**os.environ, "COVERAGE_RUN": "1", "COVERAGE_FILE": f"{data}.{number}"}
            listed = KEPT / f"files-{number}"
            listed.write_text("\n".join(str(file.relative_to(ROOT)) for file in files[number::workers]))
            command = ["-m", "coverage", "run", f"--rcfile={settings}", "-m", "pytest", "--unit", "-q"]
            return subprocess.call(
                [sys.executable, *command, "-p", "tests.mutants", "-p", "no:xdist", f"@{listed}"],
                cwd=ROOT, env=environment,
            )  # fmt: skip

        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(record, range(workers)))
        parts = [f"{data}.{number}" for number in range(workers)]
        subprocess.run(
            [sys.executable, "-m", "coverage", "combine", f"--data-file={data}", *parts], cwd=ROOT, check=True
        )
    return data


def tests_of(mutant: Mutant, data: Path) -> list[str]:
    """Return the tests that execute a bug's line: those of the module's own test file first, then the others, file by file."""
    import coverage

    known = coverage.CoverageData(str(data))
    known.read()
    by_line = known.contexts_by_lineno(str(ROOT / mutant.path))
    contexts = {one for line in range(mutant.line, mutant.last + 1) for one in by_line.get(line, ())}
    own = "test_" + Path(mutant.path).stem
    return sorted((one for one in contexts if one), key=lambda one: (own not in one, one))


def tried(mutant: Mutant, tests: Sequence[str]) -> Result:
    """Run the tests of a bug, in four steps, until one fails."""
    if not tests:
        return Result(mutant, "never executed")
    environment = {**os.environ, MUTANT: f"{mutant.path}:{mutant.number}", "PYTHONDONTWRITEBYTECODE": "1"}
    rest = list(tests)
    for size in (20, 100, 400, len(tests)):
        batch, rest = rest[:size], rest[size:]
        if not batch:
            break
        listed = KEPT / f"tests-{mutant.path.replace('/', '-')}-{mutant.number}"
        listed.write_text("\n".join(batch))
        command = [sys.executable, "-m", "pytest", "-p", "tests.mutants", "-p", "no:xdist", "-p", "no:cacheprovider"]
        try:
            ended = subprocess.run(
                [*command, "--unit", "-x", "-q", "--tb=no", "-o", "timeout=60", f"@{listed}"],
                cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=LIMIT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return Result(mutant, "killed", "no end")
        finally:
            listed.unlink()
        if ended.returncode:
            failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return Result(mutant, "killed", failed[0] if failed else ended.stdout.strip().rpartition("\n")[2])
    return Result(mutant, "survived")


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
    KEPT.mkdir(parents=True, exist_ok=True)
    results_file = KEPT / f"results-{arguments.seed}.jsonl"
    lines = results_file.read_text().splitlines() if results_file.exists() else []
    results = [Result(Mutant(*mutant), end, killer) for mutant, end, killer in map(json.loads, lines)]
    known = {result.mutant for result in results}
    data = executed(arguments.workers)
    todo = [mutant for mutant in drawn(arguments.seed, arguments.count) if mutant not in known]
    with ThreadPoolExecutor(arguments.workers) as pool, results_file.open("a") as file:
        for done in as_completed([pool.submit(lambda one=one: tried(one, tests_of(one, data))) for one in todo]):
            result = done.result()
            results.append(result)
            mutant = result.mutant
            row = [[mutant.path, mutant.number, mutant.line, mutant.last, mutant.what], result.end, result.killer]
            file.write(json.dumps(row) + "\n")
            file.flush()
            print(
                f"{len(results)}/{arguments.count} {result.end}: {mutant.path}:{mutant.line} {mutant.what}", flush=True
            )
    print(table(results))


if __name__ == "__main__":
    main()
