"""The documents are true: every path that ARCHITECTURE.md and README.md name exists, and every default is as it is written."""

import re
from collections.abc import Iterator

import pytest

from admin.options import AdminOptions
from lookupd.options import LookupdOptions
from nsqd.options import NsqdOptions
from shared.options import Spec, specs
from tests.daemons import ROOT

_PATH = re.compile(r"`([a-z_]+(?:/[A-Za-z_.]+)+)`|\]\(([A-Za-z/_.]+)\)")
_MADE = ("penstock/_app/", "build/docs")  # exists in a wheel only; made by make docs


@pytest.mark.parametrize(
    "document",
    [
        "ARCHITECTURE.md",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/glossary.md",
    ],
)
def test_paths_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    named = {match[1] or match[2] for match in _PATH.finditer(text)} - set(_MADE)
    assert named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


_ROW = re.compile(r"^\| ((?:`[a-z0-9-]+` ?)+)\| ([^|]*) \| (.*) \|$", re.MULTILINE)
_NSQD, _LOOKUPD = "Beyond NSQ's:", "Of nsqlookupd:"  # the headings of the tables
_OPTIONS = {_NSQD: NsqdOptions, _LOOKUPD: LookupdOptions}


def documented_defaults() -> Iterator[tuple[type, str, str]]:
    """Each flag in the tables of docs/configuration.md: whose it is, its name, and its default as it is written."""
    text = (ROOT / "docs/configuration.md").read_text()
    for heading, options in _OPTIONS.items():
        table = text.partition(heading)[2].partition("\n\n")[2].partition("\n\n")[0]
        for flags, default, meaning in _ROW.findall(table):
            names = flags.replace("`", "").split()
            defaults = default.split(";") if ";" in default else [default] * len(names)
            for name, written in zip(names, defaults, strict=True):
                yield (AdminOptions if meaning.startswith("nsqadmin:") else options), name, written


def value_of(written: str, spec: Spec) -> object:
    """`10,000`, `10m`, `off`, `none`, or `0: no limit`, as the option has it."""
    word = written.replace("`", "").partition(":")[0].replace(",", "").strip()
    if word in ("", "none") and spec.default != word:
        return spec.from_text("false" if spec.type is bool else "")
    return spec.from_text({"off": "false"}.get(word, word) if spec.type is bool else word)


def test_defaults_are_as_configuration_md_says() -> None:
    found = list(documented_defaults())
    assert len(found) > 25
    wrong = []
    for options, name, written in found:
        spec = next(spec for spec in specs(options, "x") if spec.flag == name)
        if value_of(written, spec) != spec.default:
            wrong.append(f"{name}: {written.strip()} is written, {spec.default} is true")
    assert wrong == []


@pytest.mark.parametrize("options", [NsqdOptions, LookupdOptions])
def test_every_flag_is_in_configuration_md(options: type) -> None:
    text = (ROOT / "docs/configuration.md").read_text()
    assert [spec.flag for spec in specs(options, "x") if f"`{spec.flag}`" not in text] == []
