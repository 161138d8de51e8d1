"""Modules that are left out of an import are there for a later one, and one that was imported before is not left out."""

import sys
from pathlib import Path

import pytest

from shared.process.partial_import import Placeholder, without


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    there = tmp_path / "heavy_rest"
    there.mkdir()
    (there / "__init__.py").write_text(
        "try:\n    from heavy_rest.main import run\nexcept ImportError:\n    run = 'none'\n"
    )
    (there / "main.py").write_text("def run(): return 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("heavy_rest", "heavy_rest.main"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "heavy_rest"


def test_a_part_cannot_be_imported_while_it_is_left_out_and_stays_if_it_was_imported(package: str) -> None:
    with without(f"{package}.main"):
        assert __import__(package).run == "none"
    assert f"{package}.main" not in sys.modules
    assert __import__(f"{package}.main").main.run() == 7
    known = __import__(f"{package}.main").main
    with without(f"{package}.main"):
        assert sys.modules[f"{package}.main"] is known
    assert sys.modules[f"{package}.main"] is known


def test_a_stand_in_has_every_name_and_an_import_that_fails_leaves_nothing_behind(package: str) -> None:
    with without(f"{package}.main", stand_in=Placeholder(f"{package}.main")):
        assert __import__(package).run is None
    assert f"{package}.main" not in sys.modules
    with pytest.raises(KeyError), without("no_such_package.part"):
        raise KeyError
    assert "no_such_package.part" not in sys.modules
