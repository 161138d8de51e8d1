"""Six situations of a bad night, on pages that are open and on pages that are opened afterwards.

Only a campaign runs them. test_inventory, test_monitor, test_checks, test_monitor_process and test_live_process test the same
at less cost, and a killed node or nsqadmin, a full disk and a wrong clock in addition.
"""

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from penstock.client import Message
from tests.admin.night import (
    WAIT,
    Night,
    a_night,
    an_nsqadmin,
    fails,
    opened,
    picture,
    producer,
    renamed,
    says,
    work,
)
from tests.admin.nodes.test_cluster_process import copies, member
from tests.daemons import Daemon, eventually, post, publish

pytestmark = [pytest.mark.process, pytest.mark.campaign]
MARKED = ".banner.wrong:visible"
SLOWLY = 1.0  # s for a message, so that nodes hold some all night


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, chrome: Browser) -> Iterator[Night]:
    with a_night(tmp_path_factory.mktemp("night"), chrome) as found:
        found.channel("orders", "mail", 200)
        found.channel("clicks", "archive", 0)
        with (
            work(found.lookupd, "orders", "mail", Message.finish, SLOWLY),
            work(found.lookupd, "clicks", "archive", Message.finish),
        ):
            depths = partial(re.findall, r'"Depth" class="n">1\d\d<')
            for admin in (found.watched, found.unwatched):  # how many messages each node holds is known
                eventually(lambda url=f"http://{admin.http}/nodes": len(depths(httpx.get(url, timeout=20).text)) == 3)
            yield found


def row(page: Page, topic: str, name: str, words: str | re.Pattern[str]) -> None:
    expect(page.locator(f"#t-{topic} td[data-label='{name}']")).to_have_text(words, timeout=WAIT)


def less(before: int) -> re.Pattern[str]:
    """Such a sum without the messages of one node: each has 200, and one more."""
    return re.compile(f"^({before - 200}|{before - 201})$")


def shown(page: Page, topic: str = "orders", name: str = "Messages") -> int:
    return int(page.locator(f"#t-{topic} td[data-label='{name}']").inner_text(timeout=WAIT).replace(",", ""))


def banners(page: Page) -> list[str]:
    return page.locator(f"main {MARKED}").all_inner_texts()


def is_down(page: Page, address: str) -> None:
    """The page says that a node is down, since when, what is stuck on it, and that sums lack it; once, and in red."""
    says(page, "Node down:", address, "messages are stuck on it: ", "orders (", "2 of 3 nodes")
    says(page, "since 20")
    color = page.locator(".banner.wrong .bad").first.evaluate("one => getComputedStyle(one).color")
    red, green, blue = map(int, re.findall(r"\d+", color)[:3])
    assert red > 2 * max(green, blue), color
    assert len([one for one in banners(page) if address in one]) == 1, banners(page)


@contextmanager
def down_for_a_while(night: Night, number: int, go: Callable[[], object], come: Callable[[], object]) -> Iterator[Page]:
    """A page of nsqadmin after a node went, and another one; when the block ends, the node comes back."""
    address = night.address(number)
    try:
        with night.opened() as page:
            before = shown(page)
            go()
            is_down(page, address)
            row(page, "orders", "Messages", less(before))
            with night.fresh() as other:
                is_down(other, address)
                row(other, "orders", "Messages", less(before))
                yield other
            come()
            row(page, "orders", "Messages", str(before))
            expect(page.locator(MARKED)).to_have_count(0, timeout=WAIT)
    finally:
        come()
    night.until_both("node-down", is_raised=False)


def test_a_node_is_frozen(night: Night) -> None:
    process = night.nodes[0].process
    stopped: list[str] = []

    def freeze() -> None:
        process.send_signal(signal.SIGSTOP)
        stopped.append(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}")

    with down_for_a_while(night, 0, freeze, lambda: process.send_signal(signal.SIGCONT)) as other:
        given = re.search(r"Last figures: (\S+ \S+) UTC", other.inner_text("main"))
        assert given[1] <= stopped[0], "not after the node was stopped"
        other.goto(f"http://{night.unwatched.http}/nodes")
        says(other, "DOWN", "1 of 1 nsqlookupd")
        picture(other, "2-node-frozen")


def test_nsqadmin_is_cut_off_from_a_node(night: Night) -> None:
    address = night.address(2)
    with down_for_a_while(night, 2, night.network.cut, night.network.repair) as other:
        other.click(f"a[href='/nodes/{address.replace(':', '%3A')}']")
        says(other, "DOWN", "Last known figures")
        assert len(banners(other)) == 1, banners(other)
        picture(other, "5-partition")


def test_the_consumers_of_a_channel_are_gone(night: Night) -> None:
    night.channel("emails", "send")
    with night.opened() as page, night.opened("/topics/emails/send") as channel:
        with work(night.lookupd, "emails", "send", Message.finish):
            expect(figure_of(channel, "Clients")).to_have_text("3", timeout=WAIT)
        with producer(night.nodes, "emails", 200):
            says(page, "Backlog growing", "Channel without consumer")
            is_first(page, "emails")
            with night.fresh() as other:
                says(other, "Backlog growing", "Channel without consumer")
                is_first(other, "emails")
                picture(other, "7-consumers-gone")
            with night.fresh("/topics/emails/send") as other:
                for one in (channel, other):
                    says(one, "No clients connected.")
                    expect(figure_of(one, "Clients")).to_have_class("bad", timeout=WAIT)
                    expect(figure_of(one, "Time to drain")).to_have_text("growing", timeout=WAIT)
    night.delete("emails")
    night.until_both("channel-without-consumer", is_raised=False)


def test_every_message_of_a_topic_fails(night: Night) -> None:
    night.channel("payments", "charge")
    says_so = "Messages are being buried"
    with (
        night.opened() as page,
        night.opened("/topics/payments/charge") as channel,
        producer(night.nodes, "payments", 4),
        work(night.lookupd, "payments", "charge", fails),
    ):
        says(page, "Critical:", says_so)
        is_first(page, "payments")
        expect(figure_of(channel, "Buried")).to_have_class("bad", timeout=WAIT)
        with night.fresh() as other:
            says(other, "Critical:", says_so)
            is_first(other, "payments")
        with night.fresh("/topics/payments/charge") as other:
            for one in (channel, other):
                expect(figure_of(one, "Failure share, 5 min")).to_have_text("100 %", timeout=WAIT)
                expect(figure_of(one, "Finished/s")).to_have_text("0.0", timeout=WAIT)
                expect(figure_of(one, "Buried")).to_have_text(re.compile("[1-9]"), timeout=WAIT)
            picture(other, "6-every-message-fails")
    night.delete("payments")
    night.until_both("buried", is_raised=False)


def is_first(page: Page, topic: str) -> None:
    expect(page.locator("table tbody tr").first).to_have_attribute("id", f"t-{topic}", timeout=WAIT)


def figure_of(page: Page, label: str) -> Locator:
    return page.locator(f"#live dl.figures div:has(dt:text-is('{label}')) dd")


def test_nsqlookupd_is_restarted(night: Night) -> None:
    with night.opened() as page:
        before = shown(page)
        page.evaluate(_LEAST)
        night.lookupd.kill()
        says(page, "nsqlookupd down")
        with night.fresh() as other:
            row(other, "orders", "Messages", str(before))
            says(other, "nsqlookupd down")
            # of this cause; what failed earlier in this night may still have one
            about = re.compile(f"nsqlookupd|{re.escape(night.lookupd.http)}")
            expect(other.locator(MARKED, has_text=about)).to_have_count(1, timeout=WAIT)
        with Daemon("nsqlookupd", "-http-address", night.lookupd.http):  # at another TCP port: no node registers yet
            expect(page.locator("main")).not_to_contain_text("nsqlookupd down", timeout=WAIT)
            with night.fresh() as other:
                row(other, "orders", "Messages", str(before))
                assert "of 3 nodes" not in other.inner_text("main")
                other.goto(f"http://{night.unwatched.http}/nodes")
                says(other, "up, not registered", "0 of 1 nsqlookupd")
                picture(other, "3-nsqlookupd-restarted")
            assert page.evaluate("window.least") == before


_LEAST = """() => {
  window.least = Infinity;
  const look = () => {
    const cell = document.querySelector("#t-orders td[data-label=Messages]");
    window.least = Math.min(window.least, cell ? Number(cell.textContent.replaceAll(",", "")) : -1);
  };
  look();
  new MutationObserver(look).observe(document.getElementById("live"), {childList: true, subtree: true, characterData: true});
}"""


def test_a_log_is_promoted(tmp_path: Path, chrome: Browser) -> None:
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", preexec=renamed("nsqlookupd")))
        flags = ("-lookupd-tcp-address", lookupd.tcp, "-failover-quorum=majority")
        members = [stack.enter_context(member(tmp_path, 0, *flags, preexec=renamed("nsqd-0")))]
        join = (*flags, "-cluster-peer", members[0].addresses["CLUSTER"])
        members += [stack.enter_context(member(tmp_path, one, *join, preexec=renamed(f"nsqd-{one}"))) for one in (1, 2)]
        admins = [stack.enter_context(an_nsqadmin(lookupd, tmp_path / name)) for name in ("watched", "unwatched")]
        post(members[2], "/topic/create", topic="orders")
        post(members[2], "/channel/create", topic="orders", channel="mail")
        publish(members[2], "orders", *("x" for _ in range(30)))
        for admin in admins:
            eventually(lambda admin=admin: {(2, 0, "in sync"), (2, 1, "in sync")} <= copies(admin))
        with opened(chrome, admins[0]) as page:
            members[2].kill()
            promoted = re.compile(r"Node down: .*Node [01] leads its log now and delivers its messages")
            expect(page.locator("main")).to_contain_text(promoted, timeout=WAIT)
            assert len([one for one in banners(page) if members[2].http in one]) == 1, banners(page)
            row(page, "orders", "Depth", "30")
        with opened(chrome, admins[1]) as page:
            expect(page.locator("main")).to_contain_text(promoted, timeout=WAIT)
            row(page, "orders", "Depth", "30")
            page.goto(f"http://{admins[1].http}/cluster")
            says(page, "lost", "is down")
            picture(page, "9-log-taken-over")
