"""No modules of the product import each other, not even for types."""

import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tests.project.code import PACKAGES, sources

_FROM = re.compile(r"^ *from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)


def imported(text: str, modules: set[str]) -> Iterator[str]:
    """Yield the modules that a module imports anywhere, also under TYPE_CHECKING; packages themselves are left out."""
    for package, names in _FROM.findall(text):
        yield from {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))} & modules


def test_no_module_imports_one_that_imports_it() -> None:
    found = {
        path.removesuffix(".py").replace("/", "."): text for one in PACKAGES for path, text in sources(one).items()
    }
    modules = {name for name in found if not name.endswith(".__init__")}
    assert len(modules) > 500
    graph = {name: set(imported(found[name], modules)) - {name} for name in modules}
    assert sum(map(len, graph.values())) > 2000
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"these import each other: {' -> '.join(error.args[1])}") from None
