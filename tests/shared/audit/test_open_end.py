"""Where the chain of a file ends, and what a crash may leave there."""

import os
from pathlib import Path

import pytest

from shared.audit.chain import FIRST, MOST_LINE, Head, digest
from shared.audit.trail import TAIL, End, open_end
from tests.cases import each
from tests.shared.audit.test_chain import chain


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def test_a_file_is_made_for_owner_and_group_or_cannot_be_written(tmp_path: Path) -> None:
    assert open_end(str(tmp_path / "audit")) == End(Head(0, FIRST))
    assert os.stat(tmp_path / "audit").st_mode & 0o007 == 0
    with pytest.raises(OSError):
        open_end(str(tmp_path))
    with pytest.raises(OSError):
        open_end(str(tmp_path / "none" / "audit"))
    with pytest.raises(OSError, match="not a regular file"):
        open_end("/dev/null")


def test_the_chain_ends_with_the_last_line_of_which_only_the_end_is_read(tmp_path: Path) -> None:
    lines = chain(5)
    assert open_end(write(tmp_path / "audit", b"\n".join([*lines, b""]))) == End(Head(5, digest(lines[4])))
    lines = chain(TAIL // 200)
    content = b"\n".join([*lines, b""])
    assert len(content) > TAIL
    assert open_end(write(tmp_path / "long", content)).head == Head(len(lines), digest(lines[-1]))


@each("whole, half", [*((chain(1), chain(2)[1][:size]) for size in (1, 50, -1)), ([], b'{"seq"')])
def test_half_a_line_is_cut_off(tmp_path: Path, whole: list[bytes], half: bytes) -> None:
    content = b"".join(line + b"\n" for line in whole)
    end = open_end(write(tmp_path / "audit", content + half))
    assert end == (End(Head(1, digest(whole[0])), torn=len(half)) if whole else End(torn=6))
    assert (tmp_path / "audit").read_bytes() == content


@each("junk", [b"junk", b"\0\0\0", b"{}"])
def test_a_last_line_that_is_no_record_is_kept_and_the_numbers_go_on(tmp_path: Path, junk: bytes) -> None:
    lines = chain(3)
    end = open_end(write(tmp_path / "audit", b"\n".join([*lines, junk, b""])))
    assert end == End(Head(3, digest(junk)), is_corrupt=True)


@each("content", [b"junk\n", b"[[token]]\n" * 50_000, b"\0" * (MOST_LINE + 1), b"a\n" + b"\0" * 1_000_000])
def test_another_kind_of_file_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(OSError, match="this file has"):
        open_end(write(tmp_path / "other", content))
    assert (tmp_path / "other").read_bytes() == content
