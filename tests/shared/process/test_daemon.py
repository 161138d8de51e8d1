"""The build of the interpreter: the variables are those of real ones."""

import logging
import sysconfig
from typing import Any

import pytest

from shared.process.daemon import lacks_pgo, note_slow_interpreter
from tests.cases import each

GCC = "-fprofile-use -fprofile-correction"
PYENV = {"CONFIG_ARGS": "'--prefix=/opt/python' '--enable-shared'", "PGO_PROF_USE_FLAG": GCC}
OPTIMIZED = {
    "CONFIG_ARGS": "'--build=x86_64-linux-gnu' '--enable-optimizations' '--with-lto'",
    "PGO_PROF_USE_FLAG": GCC,
}
DEBIAN = {"CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--with-computed-gotos'", "PGO_PROF_USE_FLAG": ""}


@each("variables, lacks", [
    (PYENV, True), (OPTIMIZED, False), (DEBIAN, False), ({}, False),  # Windows, PyPy
    ({"CONFIG_ARGS": "", "PGO_PROF_USE_FLAG": GCC}, False), ({"CONFIG_ARGS": None, "PGO_PROF_USE_FLAG": None}, False),
])  # fmt: skip
def test_the_log_has_a_line_if_pgo_is_certainly_missed(
    variables: dict[str, Any], lacks: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert lacks_pgo(variables) is lacks
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda: variables)
    caplog.set_level(logging.INFO)
    caplog.clear()
    note_slow_interpreter()
    assert len(caplog.records) == lacks
    assert caplog.text.count("PYTHON: this interpreter was built without profile-guided optimization") == lacks
