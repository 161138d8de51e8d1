"""The work of nsq_to_http: messages, their requests and results. Threads and endpoints are fakes."""

from hypothesis import given
from hypothesis import strategies as st

from apps.destinations import HostPool
from apps.requesting import Item, Requester, Requesting, Result, fill
from apps.timings import Status
from tests.apps import test_republishing as republishing
from tests.apps.test_republishing import Answers, messages


class Failed(Exception):
    pass


class Endpoint:
    """Takes what does not begin with "bad"."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.cleaned = 0

    def send(self, url: str, body: bytes) -> None:
        self.sent.append((url, body))
        if "bad" in url or body.startswith(b"bad"):
            raise Failed("no")

    def close_stale(self) -> None:
        self.cleaned += 1


class Threads(republishing.Threads):
    """Each job is a request, which succeeds or fails."""

    def end_first(self, error: str = "") -> None:
        self.done.append(Result(self.jobs.popleft(), 0.1, error))


def route(threads: Threads, sample: bool = True) -> Requesting:
    names = {"http://a/": "http://a/", "http://u:p@b/": "http://b/"}
    return Requesting(HostPool(tuple(names)), threads, Status(1, names), names, lambda: sample)  # type: ignore[arg-type]


def test_a_success_is_finished_and_a_failure_backs_off() -> None:
    answers, threads = Answers(), Threads(2)
    forward = route(threads)
    forward.take("t", messages(answers, 0, 1, 2), 0.0)
    forward.dispatch(0.0)
    assert [job.address for job in threads.jobs] == ["http://a/", "http://u:p@b/"]
    threads.end_first()
    threads.end_first("got status code 500")
    forward.collect(1.0)
    assert answers.finished == [0]
    assert answers.requeued == [(1, None, True)]
    forward.dispatch(1.0)
    assert [job.address for job in threads.jobs] == ["http://a/"]  # the other one is dead for now
    forward.abandon()
    assert answers.requeued[1:] == [(2, 0, False)]
    assert not forward.busy


def test_what_is_not_in_the_sample_is_finished() -> None:
    answers, threads = Answers(), Threads(2)
    route(threads, sample=False).take("t", messages(answers, 0, 1), 0.0)
    assert answers.finished == [0, 1]


def test_what_waits_and_what_is_in_work_is_touched_when_it_is_old() -> None:
    answers, threads = Answers(), Threads(1)
    forward = route(threads)
    forward.take("t", messages(answers, 0, 1), 0.0)
    forward.dispatch(0.0)
    forward.touch_older(0.0, 4.0)
    assert answers.touched == []
    forward.touch_older(1.0, 6.0)
    assert sorted(answers.touched) == [0, 1]
    forward.touch_older(5.0, 10.0)
    assert len(answers.touched) == 2


@given(st.lists(st.sampled_from(["take", "dispatch", "ok", "fail", "collect"]), max_size=60))
def test_in_any_order_each_message_is_answered_once_and_finished_only_after_a_success(steps: list[str]) -> None:
    answers, threads, taken = Answers(), Threads(2), 0
    forward = route(threads)
    good: set[int] = set()
    for now, step in enumerate(steps):
        if step == "take":
            forward.take("t", messages(answers, taken), now)
            taken += 1
        elif step == "dispatch":
            forward.dispatch(now)
        elif step == "collect":
            forward.collect(now)
        elif threads.jobs:
            if step == "ok":
                good.add(int(threads.jobs[0].message.body))
            threads.end_first("" if step == "ok" else "no")
        assert set(answers.finished) <= good
    forward.collect(99.0)
    forward.give_back()
    forward.abandon()
    assert sorted(answers.finished + [one for one, _, _ in answers.requeued]) == list(range(taken))
    assert set(answers.finished) == good


def test_a_thread_sends_a_get_or_a_post() -> None:
    endpoint, answers = Endpoint(), Answers()
    get, post = Requester(endpoint, Failed, True), Requester(endpoint, Failed, False)
    (good,), (bad,) = messages(answers, 0, body=b"a b"), messages(answers, 1, body=b"bad")
    result = get.work(Item(good, 0.0, "http://a/%s"))
    assert result.error == ""
    assert 0 <= result.seconds < 60
    assert post.work(Item(good, 0.0, "http://a/")).error == ""
    assert get.work(Item(bad, 0.0, "http://a/%s")).error == "no"
    assert post.work(Item(bad, 0.0, "http://a/")).error == "no"
    assert endpoint.sent[:2] == [("http://a/a+b", b""), ("http://a/", b"a b")]
    get.idle()
    assert endpoint.cleaned == 1
    assert fill("http://h/%s?x=%%41&y=%20", b"a/b\xff~") == "http://h/a%2Fb%FF~?x=%41&y=%20"
