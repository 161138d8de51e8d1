"""Log-ins by OIDC under way: each ends once, in time, in its browser; nothing grows."""

from __future__ import annotations

from itertools import count

import pytest

from admin.oidc_flow import LIFETIME, MOST_FOLLOWING, FlowError, Flows
from tests.cases import each


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def flows(clock: Clock, key: bytes = b"key") -> Flows:
    words = count()
    return Flows(key, clock, lambda: f"word-{next(words)}")


def test_it_ends_with_what_it_began_with() -> None:
    kept = flows(Clock())
    begun, cookie = kept.begin("/topics/ü?x=1")
    assert begun.following == "/topics/ü?x=1"
    assert len({begun.state, begun.nonce, begun.verifier}) == 3
    assert 43 <= len(begun.verifier) <= 128  # RFC 7636, 4.1
    assert kept.finish(cookie, begun.state) == begun
    with pytest.raises(FlowError, match="already used"):
        kept.finish(cookie, begun.state)


def test_it_is_over_after_its_time() -> None:
    for seconds, is_over in ((LIFETIME, False), (LIFETIME + 1, True)):
        clock = Clock()
        kept = flows(clock)
        begun, cookie = kept.begin("")
        clock.now += seconds
        if is_over:
            with pytest.raises(FlowError, match="more than 600 s ago"):
                kept.finish(cookie, begun.state)
        else:
            assert kept.finish(cookie, begun.state) == begun


@each("cookie", ["", ".", "...", "word-0", "word-0.1000.", "word-0.1000..", "ü.1.x.y"])
def test_a_cookie_that_was_not_made_here(cookie: str) -> None:
    kept = flows(Clock())
    begun, _ = kept.begin("")
    with pytest.raises(FlowError, match="not made by this process"):
        kept.finish(cookie, begun.state)


def test_no_part_of_the_cookie_can_be_changed_and_another_process_takes_none() -> None:
    kept = flows(Clock())
    begun, cookie = kept.begin("/a")
    for place in range(len(cookie)):
        changed = cookie[:place] + ("A" if cookie[place] != "A" else "B") + cookie[place + 1 :]
        with pytest.raises(FlowError):
            kept.finish(changed, begun.state)
    with pytest.raises(FlowError):
        flows(Clock(), b"another key").finish(cookie, begun.state)
    with pytest.raises(FlowError, match="another login"):
        kept.finish(cookie, kept.begin("/a")[0].state)
    assert kept.finish(cookie, begun.state) == begun  # nothing of that has ended it


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.oidc_flow.MOST_USED", 10)
    clock = Clock()
    kept = flows(clock)
    for _ in range(30):
        begun, cookie = kept.begin("")
        kept.finish(cookie, begun.state)
    assert len(kept._used) == 10
    clock.now += LIFETIME + 1
    begun, cookie = kept.begin("")
    kept.finish(cookie, begun.state)
    assert len(kept._used) == 1


def test_a_long_path_is_left_out() -> None:
    kept = flows(Clock())
    assert kept.begin("/" * MOST_FOLLOWING)[0].following
    assert not kept.begin("/" * (MOST_FOLLOWING + 1))[0].following
