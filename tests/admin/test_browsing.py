"""What a page of messages refuses before it asks any node."""

from __future__ import annotations

from pathlib import Path

import pytest

from admin.browsing import one_number
from shared.http.errors import HttpError
from tests.admin.asking import OURS, auth_file, bearer, browser, in_loop, make
from tests.cases import each

ROLE = """[[role]]
name = "repair"
rules = [{ verbs = ["browse", "act"], topics = ["t"] }, { verbs = ["publish"], topics = ["spare"] }]
"""


def ask(directory: Path, name: str, path: str, form: dict[str, str] | None = None) -> tuple[int, str]:
    """Send a request of a user with the role of that name. Return the status and the page."""

    async def work() -> tuple[int, str]:
        app = make(auth_file=auth_file(directory, ROLE, **{one: [one] for one in ("viewer", "body-viewer", "repair")}))
        async with browser(app, **OURS, **bearer(name)) as client:
            answer = await (client.get(path) if form is None else client.post(path, data=form))
            return answer.status_code, answer.text

    return in_loop(work)


@pytest.mark.process
@pytest.mark.parametrize("filters", ["contains=x", "header=trace"])
def test_who_may_not_read_does_not_filter_by_contents(tmp_path: Path, filters: str) -> None:
    status, text = ask(tmp_path, "viewer", f"/messages/t/c?{filters}")
    assert (status, "requires permission to view message bodies" in text) == (403, True)
    assert ask(tmp_path, "viewer", "/messages/t/c?min_attempts=2")[0] == 502  # no node is there
    assert ask(tmp_path, "body-viewer", f"/messages/t/c?{filters}")[0] == 502
    form = {"action": "bury", "state": "ready", "count": "5", "per_second": "1", **dict([filters.split("=")])}
    assert ask(tmp_path, "repair", "/messages/t/c", form)[0] == 403


@pytest.mark.process
@pytest.mark.parametrize(("to", "status"), [("spare", 502), ("other", 403), ("t", 400), ("", 400), ("no name!", 400)])
def test_messages_are_moved_only_to_where_the_user_may_publish(tmp_path: Path, to: str, status: int) -> None:
    form = {"action": "move", "state": "ready", "count": "5", "per_second": "1", "to": to}
    assert ask(tmp_path, "repair", "/messages/t/c", form)[0] == status
    assert ask(tmp_path, "viewer", "/messages/t/c", form)[0] == 403


@pytest.mark.process
def test_states_and_actions_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    for asked in ("state=dead", "state=ready&many=kick", "state=buried&many=requeue"):
        assert ask(tmp_path, "body-viewer", f"/messages/t/c?{asked}")[0] == 400


@each("text", ["", "-1", "1,2", "\u0663", "9" * 21])
def test_one_number_is_one(text: str) -> None:
    with pytest.raises(HttpError):
        one_number(text, "offset")
