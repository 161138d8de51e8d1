"""Log-ins by OIDC in progress: each ends once, in time, in its browser; nothing grows."""

from itertools import count

import pytest

from admin.users.oidc_flow import LIFETIME, MOST_FOLLOWING, FlowError, Flows
from tests.admin.asking import Clock
from tests.cases import each


def flows(clock: Clock, key: bytes = b"key") -> Flows:
    numbers = count()
    return Flows(key, clock, lambda: f"word-{next(numbers)}")


def test_it_ends_with_what_it_began_with() -> None:
    kept = flows(Clock(1000.0))
    begun, cookie = kept.begin("/topics/ü?x=1")
    assert begun.following == "/topics/ü?x=1"
    assert len({begun.state, begun.nonce, begun.verifier}) == 3
    assert 43 <= len(begun.verifier) <= 128  # RFC 7636, 4.1
    assert kept.finish(cookie, begun.state) == begun
    with pytest.raises(FlowError, match="already used"):
        kept.finish(cookie, begun.state)
    assert kept.begin("/" * MOST_FOLLOWING)[0].following
    assert not kept.begin("/" * (MOST_FOLLOWING + 1))[0].following, "a long path is left out"
    clock = Clock(1000.0)
    kept = flows(clock)
    (first, cookie), (begun, late) = kept.begin(""), kept.begin("")
    clock.now += LIFETIME
    assert kept.finish(cookie, first.state) == first
    clock.now += 1
    with pytest.raises(FlowError, match="more than 600 s ago"):
        kept.finish(late, begun.state)


@each("cookie", ["", ".", "...", "word-0", "word-0.1000.", "word-0.1000..", "ü.1.x.y"])
def test_a_cookie_that_was_not_made_here(cookie: str) -> None:
    kept = flows(Clock(1000.0))
    begun, _ = kept.begin("")
    with pytest.raises(FlowError, match="not made by this process"):
        kept.finish(cookie, begun.state)


def test_no_part_of_the_cookie_can_be_changed_and_another_process_takes_none() -> None:
    kept = flows(Clock(1000.0))
    begun, cookie = kept.begin("/a")
    for place in range(len(cookie)):
        changed = cookie[:place] + ("A" if cookie[place] != "A" else "B") + cookie[place + 1 :]
        with pytest.raises(FlowError):
            kept.finish(changed, begun.state)
    with pytest.raises(FlowError):
        flows(Clock(1000.0), b"another key").finish(cookie, begun.state)
    with pytest.raises(FlowError, match="another login"):
        kept.finish(cookie, kept.begin("/a")[0].state)
    assert kept.finish(cookie, begun.state) == begun  # nothing of that has ended it


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.users.oidc_flow.MOST_USED", 10)
    clock = Clock(1000.0)
    kept = flows(clock)
    for _ in range(30):
        begun, cookie = kept.begin("")
        kept.finish(cookie, begun.state)
    assert len(kept._used) == 10
    clock.now += LIFETIME + 1
    begun, cookie = kept.begin("")
    kept.finish(cookie, begun.state)
    assert len(kept._used) == 1
