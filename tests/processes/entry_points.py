"""The entry points of pyproject.toml as an installation would have them, for tests that run in a checkout."""

import tomllib
from pathlib import Path

from tests.daemons import ROOT


def install_entry_points(site: Path) -> Path:
    """Write the metadata of a distribution with kombu's entry points into `site`, and return it: a directory for PYTHONPATH."""
    info = site / "example-1.dist-info"
    info.mkdir(parents=True)
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["kombu.serializers"]
    lines = [f"{name} = {value}" for name, value in declared.items()]
    (info / "entry_points.txt").write_text("\n".join(["[kombu.serializers]", *lines, ""]))
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: example\nVersion: 1\n")
    return site
