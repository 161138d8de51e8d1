"""`penstock completion bash|zsh|fish`: the words that a shell completes, as a script that the shell reads once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator

from shared.terminal.commands import ExitCode, Parser

_BASH = """\
_penstock() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" key="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$key $word" in
{descents}
    esac
  done
  case "$key" in
{words}
  esac
  if [[ -z "${{COMPREPLY[*]}}" ]]; then COMPREPLY=($(compgen -f -- "$current")); fi
}}
complete -F _penstock penstock
"""
_ZSH = "autoload -U +X bashcompinit && bashcompinit\n" + _BASH
SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """
A shell reads a file faster than it starts penstock. Write the file again after an upgrade.

examples:
  penstock completion bash > ~/.local/share/bash-completion/completions/penstock
  penstock completion zsh > ~/.penstock.zsh  # source it in ~/.zshrc, after compinit
  penstock completion fish > ~/.config/fish/completions/penstock.fish
"""


def main(parsers: Iterable[argparse.ArgumentParser], arguments: list[str]) -> int:
    """Print the script for a shell, and return the exit code. `parsers`: those of all commands."""
    parser = Parser(
        prog="penstock completion", description="print a script by which a shell completes commands and options",
        epilog=EXAMPLES,
    )  # fmt: skip
    parser.add_argument("shell", choices=SHELLS)
    shell = parser.parse_args(arguments).shell
    sys.stdout.write(script(shell, words_of(parsers)))
    return ExitCode.DONE


def words_of(parsers: Iterable[argparse.ArgumentParser]) -> dict[tuple[str, ...], list[str]]:
    """Return the words after each command: subcommands, or else options. The key of the program itself is ()."""
    found: dict[tuple[str, ...], set[str]] = {}
    for parser in parsers:
        for path, words in _words(parser):
            found.setdefault(path, set()).update(words)
    return {path: sorted(words) for path, words in sorted(found.items())}


def _words(parser: argparse.ArgumentParser) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    below: dict[str, argparse.ArgumentParser] = {}
    options: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            below = dict(action.choices)
        elif action.help is not argparse.SUPPRESS:
            options += [one for one in action.option_strings if one.startswith("--")]
    yield tuple(parser.prog.split()[1:]), list(below) or options
    for command in below.values():
        yield from _words(command)


def script(shell: str, words: dict[tuple[str, ...], list[str]]) -> str:
    """Return the script for bash, zsh or fish."""
    if shell == "fish":
        return "".join(_fish(words))
    descents = [f'      "{" ".join(path[:-1])} {path[-1]}") key="{" ".join(path)}" ;;' for path in words if path]
    lists = [
        f'    "{" ".join(path)}") COMPREPLY=($(compgen -W "{" ".join(listed)}" -- "$current")) ;;'
        for path, listed in words.items()
    ]
    form = _BASH if shell == "bash" else _ZSH
    return form.format(descents="\n".join(descents), words="\n".join(lists))


def _fish(words: dict[tuple[str, ...], list[str]]) -> Iterator[str]:
    for path, listed in words.items():
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in path) or "__fish_use_subcommand"
        for word in listed:
            what = f"-l {word.removeprefix('--')}" if word.startswith("--") else f"-f -a {word}"
            yield f"complete -c penstock -n '{seen}' {what}\n"
