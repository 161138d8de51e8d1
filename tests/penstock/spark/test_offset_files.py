"""Offsets of which a file has the idle ones: they are the same, stay few, and survive what happens to the directory."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import offset_files
from penstock.spark.offset_files import FACTOR, FEW, OffsetFiles, Positions
from penstock.spark.offsets import LogPosition, NodeTopic, OffsetError, encode


def positions(count: int, **changed: int) -> Positions:
    found = {NodeTopic(f"t{number:04d}", "7"): LogPosition("c0ffee-1", 5) for number in range(count)}
    return found | {NodeTopic(name, "7"): LogPosition("c0ffee-1", at) for name, at in changed.items()}


places = st.builds(NodeTopic, st.sampled_from("abcdef"), st.sampled_from("12"))
histories = st.lists(st.dictionaries(places, st.builds(LogPosition, st.just("x"), st.integers(0, 3))), max_size=12)


@given(histories)
def test_what_is_stored_is_loaded_also_by_another_process(history: list[Positions]) -> None:
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_files, "FEW", 2)
        patch.setattr(offset_files, "FACTOR", 1)
        files, before, stored = OffsetFiles(place), None, []
        for one in history:
            before = files.store(one, before)
            stored.append(json.loads(json.dumps(before)))
            assert files.store(one, before) == before, "Spark compares the text"
            assert list(before) == sorted(before)
        assert [OffsetFiles(place).load(one) for one in stored] == history, "older ones, too: files never change"


def test_offsets_do_not_grow_with_idle_topics(tmp_path: Path) -> None:
    files, before = OffsetFiles(str(tmp_path / "new" / "directory")), None
    for at in range(6, 300):
        before = files.store(positions(2000, **{f"t{at:04d}": at, "t1999": at}), before)
        assert len(before) <= 2 + FEW + 2 * FACTOR + 2
        assert len(json.dumps(before)) < 8192
    assert len(list((tmp_path / "new" / "directory").iterdir())) < 20
    assert len(json.dumps(encode(positions(2000)))) > 80_000


def test_few_topics_need_no_file(tmp_path: Path) -> None:
    assert OffsetFiles(str(tmp_path / "new")).store(positions(FEW)) == encode(positions(FEW))
    assert OffsetFiles("").store(positions(2000)) == encode(positions(2000))
    assert not (tmp_path / "new").exists()


def test_old_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_files, "KEPT", 3)
    (tmp_path / "mine.json").touch()
    for at in range(9):
        stored = OffsetFiles(str(tmp_path)).store(positions(FEW + 1, t0000=at))
    assert len(list(tmp_path.iterdir())) == 3 + 1 + 1
    assert stored["base"].startswith("00000008-")
    assert OffsetFiles(str(tmp_path)).load(stored) == positions(FEW + 1, t0000=8)


def test_a_file_that_is_gone_or_foreign_is_an_error(tmp_path: Path) -> None:
    stored = OffsetFiles(str(tmp_path)).store(positions(FEW + 1))
    (file,) = tmp_path.iterdir()
    for content in ("{", '{"v": 9}'):
        file.write_text(content)
        with pytest.raises(OffsetError, match="belongs to the checkpoint"):
            OffsetFiles(str(tmp_path)).load(stored)
    file.unlink()
    with pytest.raises(OffsetError, match=f"belongs to the checkpoint: .*No such file .*{file.name}"):
        OffsetFiles(str(tmp_path)).load(stored)
    with pytest.raises(OffsetError):
        OffsetFiles(str(tmp_path)).load({"base": "../../etc/passwd", "v": 1})
