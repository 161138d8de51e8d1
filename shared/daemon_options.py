"""The options that every daemon has, and the checks that look at all of its options together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from shared.checks import read_level, read_word
from shared.options import option


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The base class of a daemon's options."""

    version: bool = option(False, "print version string", in_file=False)
    config: str = option("", "path to config file (TOML)", in_file=False)
    check_config: bool = option(
        False, "check flags, environment and config file, print the errors, and exit", in_file=False
    )
    print_config: bool = option(
        False, "print all options as a config file, each with the source of its value, and exit", in_file=False
    )
    log_level: str = option("info", "set log verbosity: debug, info, warn, error, or fatal", read=read_level)
    log_prefix: str = option("", "log message prefix")
    log_format: str = option("nsq", "format of log lines: nsq or json", read=read_word("nsq", "json"))
    verbose: bool = option(False, "[deprecated] has no effect, use --log-level", in_file=False)

    warnings: tuple[str, ...] = ()  # not an option: oddities of the configuration, for the log

    def completed(self) -> Self:
        """Return these options, including what some of them imply for others."""
        return self

    def problems(self) -> list[str]:
        """Return the reasons not to start that no check of a single option can see."""
        return []

    def obstacles(self) -> list[str]:
        """Return the reasons why a start would fail, as far as they show without starting; only --check-config asks."""
        return []

    def oddities(self) -> list[str]:
        """Return warnings for the operator, which do not prevent a start."""
        return []
