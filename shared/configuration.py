"""All sources of options together: flag > environment > config file > default.

Nothing here prints or exits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from shared.config_file import read_file
from shared.daemon_options import DaemonOptions
from shared.environment import read_environment
from shared.flags import read_flags
from shared.options import Found, InstantiationError, OptionError, Spec, specs

T = TypeVar("T")
DEFAULT = "default"
IMPLIED = "implied by another option"


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """What was read, and from where."""

    options: T  # without errors: all of them; with errors: those that were right
    origins: Mapping[str, str]  # field name to where its value comes from
    errors: Sequence[OptionError]  # in the order of flags, environment, file, all together


def parse(cls: type[T], program: str, argv: Sequence[str], environ: Mapping[str, str]) -> T:
    """The options. Raises OptionError for the first thing wrong, HelpRequested for -h and -help."""
    reading = read(cls, program, argv, environ)
    if reading.errors:
        raise reading.errors[0]
    return reading.options


def read(cls: type[T], program: str, argv: Sequence[str], environ: Mapping[str, str]) -> Reading[T]:
    """Read all sources, wherever errors are. Raises HelpRequested for -h and -help. After -version no other source counts."""
    known = specs(cls, program)
    flags = read_flags(cls, program, argv)
    if flags.values.get("version") and not flags.errors:
        return Reading(cls(**flags.values), {}, ())
    environment = read_environment(known, program, environ)
    path = {**environment.values, **flags.values}.get("config", "")
    file = read_file(path, known) if path else Found({})
    errors = [*flags.errors, *environment.errors, *file.errors]
    origins = {spec.name: _origin(spec, flags.values, environment.values, file.values, path) for spec in known}
    options = cls(**{**file.values, **environment.values, **flags.values})
    if isinstance(options, DaemonOptions):
        warnings = (*flags.warnings, *environment.warnings, *file.warnings)
        completed = options.completed()
        if not errors:
            errors = [InstantiationError(line) for line in completed.problems()]
            origins |= {spec.name: IMPLIED for spec in known if _differs(spec, options, completed)}
            warnings += tuple(completed.oddities())
        options = replace(completed, warnings=warnings)
    return Reading(options, origins, errors)


def _origin(
    spec: Spec, flags: Mapping[str, Any], environment: Mapping[str, Any], file: Mapping[str, Any], path: str
) -> str:
    if spec.name in flags:
        return f"flag -{spec.flag}"
    if spec.name in environment:
        return f"environment {spec.environment}"
    return f"file {path}" if spec.name in file else DEFAULT


def _differs(spec: Spec, one: object, other: object) -> bool:
    return bool(getattr(one, spec.name) != getattr(other, spec.name))
