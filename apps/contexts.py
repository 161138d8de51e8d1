"""`penstock context`: save the addresses and credentials of sets of daemons, and choose the one that commands use."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import Any

from shared.terminal.commands import CommandError, Commands, WrongArguments, make_command
from shared.terminal.context import (
    CREDENTIALS,
    FILES,
    LISTS,
    NAME,
    SETTINGS,
    Context,
    Contexts,
    add_setting,
    contexts_file,
    given,
    local_set,
    problem_of,
    read_contexts,
    write_contexts,
)
from shared.terminal.output import Column, print_rows

WHAT = "save the addresses and credentials of sets of daemons, and choose the one that commands use"
DETAILS = """
A command uses the context that --context or PENSTOCK_CONTEXT names, or else the current one. Without any, it finds the set that
`penstock up` runs on this machine. Flags and PENSTOCK_* come first. The file contexts.toml is in $XDG_CONFIG_HOME/penstock, by
default ~/.config/penstock; only its owner may read it.

examples:
  penstock context add production --lookupd-http-address 10.0.0.1:4161
  penstock context use production
  penstock status --context staging
"""
COLUMNS = (Column("current"), Column("name"), Column("addresses"), Column("credentials"))


def add_command(commands: Commands) -> None:
    """Add the command `context`, with its subcommands, to the parser."""
    context = commands.add_parser("context", help=WHAT, description=WHAT, epilog=DETAILS)
    below = context.add_subparsers(required=True, metavar="command")
    add = make_command(
        below,
        "add",
        _add,
        "save a context, in place of one with this name; the first one becomes the current one",
        "",
        "context add east --lookupd-http-address 10.0.0.1:4161",
    )
    for name in SETTINGS:
        add_setting(add, name)
    make_command(below, "use", _use, "make a context the current one", "", "context use east")
    make_command(below, "list", _list, "list the contexts; the current one has a *", "", "context list")
    make_command(below, "show", _show, "print a context, by default the one that commands use now", "", "context show")
    make_command(below, "remove", _remove, "remove a context", "", "context remove east")
    for name, command in below.choices.items():
        if name not in ("list",):
            command.add_argument("name", metavar="NAME", nargs="?" if name == "show" else None, default="")
        if name in ("list", "show"):
            command.add_argument("--json", action="store_true", help="print JSON objects")


def _read() -> Contexts:
    return read_contexts(contexts_file(os.environ))


def _write(contexts: Contexts) -> None:
    write_contexts(contexts_file(os.environ), contexts)


def _add(arguments: argparse.Namespace) -> int:
    values: dict[str, Any] = {name: value for name in SETTINGS if (value := getattr(arguments, name))}
    context = Context(**values | {name: tuple(value) for name, value in values.items() if name in LISTS})
    files = {name: os.path.abspath(value) for name, value in values.items() if name in FILES}
    context = replace(context, **files)  # a command may run in another directory
    if NAME.fullmatch(arguments.name) is None:
        raise WrongArguments("the name of a context has letters, digits, - and _, at most 64")
    if wrong := problem_of(context):
        raise WrongArguments(wrong)
    if not context.has_address:
        raise WrongArguments("give --lookupd-http-address or --nsqd-http-address")
    if not context.nsqd_http_address:
        print(
            "a node that is lost is reported only if the context names it: give --nsqd-http-address for each",
            file=sys.stderr,
        )
    contexts = _read()
    contexts.by_name[arguments.name] = context
    contexts.current = contexts.current or arguments.name
    _write(contexts)
    return 0


def _use(arguments: argparse.Namespace) -> int:
    contexts = _read()
    contexts.find(arguments.name)
    contexts.current = arguments.name
    _write(contexts)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    contexts = _read()
    contexts.find(arguments.name)
    del contexts.by_name[arguments.name]
    contexts.current = "" if contexts.current == arguments.name else contexts.current
    _write(contexts)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    contexts = _read()
    rows = [
        {
            "current": "*" if name == contexts.current else "", "name": name,
            "addresses": ", ".join((*context.lookupd_http_address, *context.nsqd_http_address)),
            "credentials": ", ".join(name for name in given(context) if name in CREDENTIALS),
        }
        for name, context in contexts.by_name.items()
    ]  # fmt: skip
    print_rows(rows, COLUMNS, as_json=arguments.json, nothing="no contexts: penstock context add NAME saves one")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    contexts = _read()
    name = arguments.name or os.environ.get("PENSTOCK_CONTEXT") or contexts.current
    if name:
        context, text = contexts.find(name), f"context {name}"
    else:
        found = local_set(os.environ)
        if found is None:
            raise CommandError(
                "no context was saved, and `penstock up` does not run: penstock context add NAME saves one"
            )
        context, text = found, "the set of penstock up"
    if arguments.json:
        print_rows([{"name": name, **given(context)}], (), as_json=True)
        return 0
    print(text, file=sys.stderr)
    for key, value in given(context).items():
        print(f"{key}: {', '.join(value) if key in LISTS else value}")
    return 0
