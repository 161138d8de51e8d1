"""A table of cases that one test goes through.

pytest takes milliseconds to collect, run and report a test, and each worker collects all. Use `each` where a case takes less,
and pytest.mark.parametrize where a case deserves a line in the report.
"""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Test = Callable[..., None]


def each(names: str, cases: Iterable[Any], **fresh: Callable[[], object]) -> Callable[[Test], Test]:
    """Call the test with each case, as `names` says, and with what each callable of `fresh` makes for this case.

    Fixtures are the same for all cases, but a `tmp_path` is empty for each. A failure has a note that names its case.
    """
    fields = [name.strip() for name in names.split(",")]
    table = [case if len(fields) > 1 else (case,) for case in cases]
    assert table, "a table without cases tests nothing"

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            for number, values in enumerate(table):
                case = dict(zip(fields, values, strict=True))
                own = {name: make() for name, make in fresh.items()}
                if "tmp_path" in fixtures:
                    own["tmp_path"] = _directory(fixtures["tmp_path"] / f"case{number}")
                try:
                    test(**fixtures | own, **case)
                except BaseException as error:
                    error.add_note(f"case {number}: {', '.join(f'{k}={_SHORT.repr(v)}' for k, v in case.items())}")
                    raise

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in fields and name not in fresh]
        run_all.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run_all

    return decorate


def _directory(path: Path) -> Path:
    path.mkdir()
    return path


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 200
