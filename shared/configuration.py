"""All sources of options together: flag > environment > config file > default.

The environment is ours, NSQ has none: `NSQD_MAX_MSG_SIZE`. Nothing here prints or exits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from shared.config_file import FileValues, read_file
from shared.daemon_options import DaemonOptions
from shared.flags import read_flags
from shared.options import OptionError, Spec, specs

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
    flags, errors = read_flags(cls, program, argv)
    if flags.get("version") and not errors:
        return Reading(cls(**flags), {}, ())
    environment, more = _read_environment(known, environ)
    path = (environment | flags).get("config", "")
    file = read_file(path, known) if path else FileValues({}, (), ())
    errors += [*more, *file.errors]
    values = dict(file.values) | environment | flags
    origins = {spec.name: _origin(spec, flags, environment, file.values, path) for spec in known}
    options = cls(**values)
    if isinstance(options, DaemonOptions) and not errors:
        completed = options.completed()
        errors = [OptionError(f"failed to instantiate {program} - {line}", code=1) for line in completed.problems()]
        origins |= {spec.name: IMPLIED for spec in known if _differs(spec, options, completed)}
        options = replace(completed, warnings=(*file.warnings, *completed.oddities()))
    return Reading(options, origins, errors)


def _read_environment(known: Sequence[Spec], environ: Mapping[str, str]) -> tuple[dict[str, Any], list[OptionError]]:
    values, errors = {}, []
    for spec in known:
        if spec.environment not in environ or spec.name == "version":  # images set NSQD_VERSION=1.3.0
            continue
        text = environ[spec.environment]
        try:
            values[spec.name] = spec.from_text(text)
        except ValueError as error:
            errors.append(OptionError(f'invalid value "{text}" for environment variable {spec.environment}: {error}'))
    return values, errors


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
