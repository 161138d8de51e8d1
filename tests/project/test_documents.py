"""The documents are true: every default and every figure is as it is written."""

import re
from collections.abc import Iterator

from admin.options import AdminOptions
from lookupd.options import LookupdOptions
from nsqd.core.work_queue.job import ROW
from nsqd.options import NsqdOptions
from nsqd.storage.log.syncer import QUICK
from shared.options import Spec, specs
from tests.daemons import ROOT

_ROW = re.compile(r"^\| ((?:`[a-z0-9-]+` ?)+)\| ([^|]*) \| (.*) \|$", re.MULTILINE)
_NSQD, _LOOKUPD = "## Flags with more to say", "Of nsqlookupd:"  # the headings of the tables
_OPTIONS = {_NSQD: NsqdOptions, _LOOKUPD: LookupdOptions}


def documented_defaults() -> Iterator[tuple[type, str, str]]:
    """Each flag in the tables of docs/reference/configuration.md: whose it is, its name, and its default as it is written."""
    text = (ROOT / "docs/reference/configuration.md").read_text()
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
    assert len(found) > 7
    wrong = []
    for options, name, written in found:
        spec = next(spec for spec in specs(options, "x") if spec.flag == name)
        if value_of(written, spec) != spec.default:
            wrong.append(f"{name}: {written.strip()} is written, {spec.default} is true")
    assert wrong == []


def test_figures_that_documents_copy_from_the_code_are_right() -> None:
    """Each page names the figure in these words; a page that names another one contradicts it."""
    quick, row = f"less than {QUICK * 1000:g} ms", f"a row of {ROW.size} bytes"
    for page, pattern, wanted in [
        ("ARCHITECTURE.md", r"syncs take (less than [\d.]+ ms)", quick),
        ("docs/contributing/design/log.md", r"syncs took (less than [\d.]+ ms)", quick),
        ("docs/images/architecture-node.svg", r"when it takes &gt; ([\d.]+ ms)", quick.removeprefix("less than ")),
        ("docs/contributing/design/channel.md", r"(a row of \d+ bytes)", row),
        ("docs/contributing/decisions.md", r"(a row of \d+ bytes)", row),
    ]:
        named = re.findall(pattern, (ROOT / page).read_text(), re.IGNORECASE)
        assert set(named) <= {wanted}, page
