"""requirements*.lock: the packages of the image and of applications, each with its version and its hashes."""

import re
import tomllib
from importlib.metadata import requires

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cases import each
from tests.daemons import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
LOCKS = {
    "requirements.lock": PROJECT["dependencies"],
    "requirements-spark.lock": [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"]],
    "requirements-build.lock": [
        line for line in (ROOT / "deploy" / "build.in").read_text().splitlines() if not line.startswith("#")
    ],
}
ENTRY = re.compile(r"([a-z0-9.-]+)==(\S+)( ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n")


def pinned(name: str) -> dict[str, str]:
    """Return the versions in a lock file, by name."""
    text = (ROOT / name).read_text()
    assert ENTRY.sub("", text) == "", "each line is a version or one of its hashes: no address, and no path"
    found = list(ENTRY.finditer(text))
    assert len(found) == len({(entry[1], entry[3]) for entry in found}), "a version for each name, and for each marker"
    return {entry[1]: entry[2] for entry in found}


@each("name", LOCKS)
def test_every_dependency_is_pinned_to_a_version_that_it_admits(name: str) -> None:
    versions = pinned(name)
    for text in LOCKS[name]:
        wanted = Requirement(text)
        assert wanted.specifier.contains(versions.get(canonicalize_name(wanted.name), "")), f"{text}: run `make lock`"


def test_what_dependencies_need_is_pinned_too() -> None:
    versions = pinned("requirements.lock")
    for name in versions:
        for text in requires(name) or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in versions, f"{name} needs {text}: run `make lock`"


def test_the_images_replace_nothing_and_install_nothing_without_hashes() -> None:
    assert pinned("requirements.lock").items() <= pinned("requirements-spark.lock").items()
    runs = re.findall(r"pip install (.+?)(?: \\)?\n", DOCKERFILE)
    assert [re.findall(r"requirements\S*\.lock", run) for run in runs if "--no-index" not in run] == [
        ["requirements-build.lock"],
        ["requirements.lock"],
        ["requirements-spark.lock"],
    ]
    assert all("--require-hashes" in run or "--no-deps --no-index" in run for run in runs)
