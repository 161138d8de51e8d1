"""The options that every daemon has, and what it may say about all of its options together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from shared.checks import read_level, read_word
from shared.options import option


@dataclass(frozen=True, slots=True)
class DaemonOptions:
    """The base of a daemon's options."""

    version: bool = option(False, "print version string", in_file=False)
    config: str = option("", "path to config file (TOML)", in_file=False)
    check_config: bool = option(
        False, "read flags, environment and config file, say what is wrong with them, and exit", in_file=False
    )
    print_config: bool = option(
        False, "print all options as a config file, each with where it comes from, and exit", in_file=False
    )
    log_level: str = option("info", "set log verbosity: debug, info, warn, error, or fatal", read=read_level)
    log_prefix: str = option("", "log message prefix")
    log_format: str = option("nsq", "form of the log's lines: nsq or json", read=read_word("nsq", "json"))
    verbose: bool = option(False, "[deprecated] has no effect, use --log-level", in_file=False)

    warnings: tuple[str, ...] = ()  # no option: what was odd about the configuration, for the log

    def completed(self) -> Self:
        """These options, with what some of them imply for others."""
        return self

    def problems(self) -> list[str]:
        """What forbids a start: what no check of one option can see."""
        return []

    def obstacles(self) -> list[str]:
        """What a start would fail at, as far as it shows without starting: what --check-config looks at besides."""
        return []

    def oddities(self) -> list[str]:
        """What an operator should know, but does not forbid a start."""
        return []
