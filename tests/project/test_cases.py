"""`each`: every case runs, with what is fresh for it, and a failure names its case."""

from pathlib import Path

import pytest

from tests.cases import each


def test_all_combinations_run_and_what_is_fresh_is_made_for_each() -> None:
    seen: list[tuple[object, ...]] = []

    @each("one", "ab")
    @each("other, third", [(1, 2), (3, 4)], fresh=list)
    def look(one: str, other: int, third: int, fresh: list[int]) -> None:
        assert fresh == []
        fresh.append(third)
        seen.append((one, other, third))

    look()
    assert seen == [("a", 1, 2), ("a", 3, 4), ("b", 1, 2), ("b", 3, 4)]


@each("name", ["a", "b"])
def test_a_directory_is_empty_for_each_case(tmp_path: Path, name: str) -> None:
    assert list(tmp_path.iterdir()) == []
    (tmp_path / name).touch()


def test_a_failure_names_its_case_and_a_table_without_cases_is_an_error() -> None:
    @each("number", [1, 0, 2])
    def divide(number: int) -> None:
        assert 1 / number

    with pytest.raises(ZeroDivisionError) as error:
        divide()
    assert error.value.__notes__ == ["case 1: number=0"]
    with pytest.raises(AssertionError, match="without cases"):
        each("number", [])
