"""No modules of the product import each other, not even for types."""

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tests.project.code import PACKAGES, trees


def imported(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Yield the modules that a module imports anywhere, also under TYPE_CHECKING; packages themselves are left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
            yield from names & modules


def test_no_module_imports_one_that_imports_it() -> None:
    found = {name.removesuffix(".py").replace("/", "."): tree for name, tree in trees(PACKAGES, "")}
    modules = {name for name in found if not name.endswith(".__init__")}
    assert len(modules) > 500
    graph = {name: set(imported(found[name], modules)) - {name} for name in modules}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' -> '.join(error.args[1])}") from None
