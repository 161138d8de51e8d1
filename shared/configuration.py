"""All sources of options together: a flag beats the environment, then the config file, then the default.

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
from shared.options import InstantiationError, OptionError, SourceValues, Spec, specs

T = TypeVar("T")
DEFAULT = "default"
IMPLIED = "implied by another option"


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """The options that were read, where each comes from, and the errors."""

    options: T  # all options, or those that were right if there are errors
    origins: Mapping[str, str]  # field name to the source of its value
    errors: Sequence[OptionError]  # in the order of flags, environment, file


def parse(cls: type[T], program: str, argv: Sequence[str], environ: Mapping[str, str]) -> T:
    """Return the options. Raises OptionError for the first error, and HelpRequested for -h and -help."""
    reading = read(cls, program, argv, environ)
    if reading.errors:
        raise reading.errors[0]
    return reading.options


def read(cls: type[T], program: str, argv: Sequence[str], environ: Mapping[str, str]) -> Reading[T]:
    """Read all sources, even after errors. Raises HelpRequested for -h and -help. -version makes it skip the other sources."""
    known = specs(cls, program)
    flags = read_flags(cls, program, argv)
    if flags.values.get("version") and not flags.errors:
        return Reading(cls(**flags.values), {}, ())
    environment = read_environment(known, program, environ)
    path = {**environment.values, **flags.values}.get("config", "")
    file = read_file(path, known) if path else SourceValues({})
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
