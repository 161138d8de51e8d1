"""`penstock completion`: the scripts work in a shell that is there, and name each command and its options."""

import subprocess

import pytest

from penstock.launch import _parsers
from shared.terminal.completion import main, script, words_of

WORDS = words_of(_parsers())


def test_the_words_of_all_commands() -> None:
    assert {"topics", "up", "context", "users", "completion"} <= set(WORDS[()])
    assert WORDS["context",] == ["add", "list", "remove", "show", "use"]
    assert {"--sort", "--json", "--context"} <= set(WORDS["topics",])
    assert "--lookupd-http-address" in WORDS["context", "add"]
    assert WORDS["auth", "token"] == ["create", "list", "revoke"]
    assert "--once" in WORDS["archive",]


@pytest.mark.process
@pytest.mark.parametrize(("line", "words"), [
    ("penstock top", {"top", "topics"}), ("penstock context u", {"use"}), ("penstock topics --so", {"--sort"}),
    ("penstock bench pub --ba", {"--batch"}),
])  # fmt: skip
def test_bash_completes(line: str, words: set[str]) -> None:
    ask = f'COMP_WORDS=({line}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _penstock; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", f"{script('bash', WORDS)}\n{ask}"], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == words


def test_each_shell_gets_a_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, part in (("bash", "complete -F _penstock penstock"), ("zsh", "bashcompinit"), ("fish", "-f -a topics")):
        assert main(_parsers(), [shell]) == 0
        assert part in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([], ["tcsh"])
