"""The token that a command presents: from a file, or from a command that prints it, such as that of a keyring.

A keyring is a command, because each system has its own: secret-tool, security, pass, vault, op.
"""

from __future__ import annotations

import shlex
import subprocess

from shared.auth.own_token import MOST_BYTES, OwnTokenError, read_token
from shared.auth.tokens import is_token
from shared.terminal.commands import CommandError


def token_of(file: str, command: str) -> str:
    """Return the token in a file, or else the one that a command prints; "" if neither is given. Raises CommandError."""
    if command and not file:
        return _printed(command)
    try:
        return read_token(file)
    except (OSError, OwnTokenError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}") from None


def _printed(command: str) -> str:
    """Return the token that a command prints. No shell runs it; it may ask the user. Raises CommandError."""
    try:
        words = shlex.split(command)
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            token = process.stdout.read(MOST_BYTES).strip()
    except (OSError, ValueError, IndexError) as error:  # of no program, an open quotation mark, and no word
        raise CommandError(f"--auth-token-command: {getattr(error, 'strerror', None) or error}") from None
    if process.returncode:
        raise CommandError(f"--auth-token-command: {words[0]} ended with exit code {process.returncode}")
    if not is_token(token):
        raise CommandError(f"--auth-token-command: {words[0]} printed no token")
    return token.decode()
