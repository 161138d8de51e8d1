"""docs/contributing/ten-types.md names fields that the types have."""

import ast
import re
from pathlib import Path

from tests.cases import each
from tests.daemons import ROOT

PAGE = (ROOT / "docs/contributing/ten-types.md").read_text()
TYPES = re.findall(r"^## (\w+)\n\n`([\w/]+\.py)`\. .*?\n\n(.*?)(?=\n## |\Z)", PAGE, re.MULTILINE | re.DOTALL)


def fields(path: Path, name: str) -> set[str]:
    """Return the attributes that a class declares, sets on itself, or inherits from a class of the same package."""
    found = set()
    for file in [path, *path.parent.glob("*.py")]:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                found |= _declared(node)
                for base in node.bases if file == path else ():
                    if isinstance(base, ast.Name):
                        found |= fields(path, base.id) if base.id != name else set()
        if found and file == path:
            return found
    return found


def _declared(scope: ast.ClassDef) -> set[str]:
    found = set()
    for node in ast.walk(scope):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attribute, ctx=ast.Store()):
                found.add(attribute)
            case ast.AnnAssign(target=ast.Name(id=attribute)):
                found.add(attribute)
            case ast.FunctionDef(name=attribute, decorator_list=[ast.Name(id="property")]):
                found.add(attribute)
    return found


def test_there_are_ten_types() -> None:
    assert len(TYPES) == 10


@each("name, file, text", TYPES)
def test_a_type_has_the_fields_that_the_page_names(name: str, file: str, text: str) -> None:
    named = {one for line in re.findall(r"^\* (.*?):", text, re.MULTILINE) for one in re.findall(r"`(\w+)`", line)}
    assert len(named) >= 4
    assert named - fields(ROOT / file, name) == set()
