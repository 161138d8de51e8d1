"""The first minute of incidents in a browser: open pages show true counts, or say how old they are.

Three nodes of a real cluster: the first one has a certificate that expires, the third one a wrong clock. At each beat, once a
second, the pages are compared with the nodes' own /stats. A page's own time counts, not that of the test on a slow machine.
"""

import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from playwright.sync_api import Browser, BrowserContext, Page, expect

from penstock.client import Consumer
from tests.admin.conftest import nsqadmin
from tests.daemons import Conversation, Daemon, eventually, nsqd, post, publish, several
from tests.processes.test_certificate_dates import issue
from tests.processes.test_cluster_chaos import small_disk
from tests.requirements import require

pytestmark = pytest.mark.process
WAIT = 90_000  # ms
FULL = re.compile("B, [0-3] %")  # free on a disk without space
BEATS = 2  # in which pages are compared, at least
MOST_BEATS = 90  # until pages must say what happened
CACHED, CHECKED = 6.0, 10.0  # s: the oldest answers that a page, and an alarm, may show as current
SPREAD = 25  # messages of topics with consumers, by which the depth of the first node moves between two looks
WRONG_CLOCK = """import sys, time
ns, seconds = time.time_ns, time.time
time.time_ns, time.time = lambda: ns() + 90 * 10**9, lambda: seconds() + 90
from penstock.launch import nsqd
nsqd()"""
ALARMS = ("-alarm-interval", "1s", "-http-client-request-timeout", "1s", "-alarm", "paused.minutes=0.01",
          "-alarm", "backlog-growing.messages=50", "-alarm", "backlog-growing.minutes=0.1")  # fmt: skip
PAGES = ("/nodes", "/", "/topics/t/c", "/alarms")
COUNTS = (  # numbers in rows of /alarms: resource and number, and of which state they are
    (r"^(t/c|held/c)\b.*?([\d,]+) messages? waiting", "depth"),
    (r"^(slow/c|rogue/c)\s+([\d,]+) messages?[,;]", "depth"),
    (r"^(fails/c)\s+(?:[\d,]+ buried in [^,]*, )?([\d,]+) (?:in all|buried;)", "buried"),
)
STATES = (("depth", "depth"), ("buried", "buried_count"))  # of a channel, and their keys in /stats
_READ = """() => ({
  at: document.querySelector("#as-of time").dateTime, text: document.body.innerText,
  rows: [...document.querySelectorAll("#live tbody tr")].map(row => {
    const depth = row.querySelector("td[data-label=Depth]");
    return [row.innerText, depth?.innerText.split("\\n")[0], depth?.querySelector("time")?.dateTime];
  })})"""
_COUNT_BEATS = "window.beats = 0; document.getElementById('live').addEventListener('beat', () => window.beats++)"


def whole(text: str) -> int:
    return int(text.replace(",", ""))


@dataclass
class Truth:
    """The counts of each node over time, by channel and state, such as "t/c depth"; "depth" is the sum."""

    nodes: list[Daemon]
    gone: set[str] = field(default_factory=set)
    seen: dict[str, list[tuple[float, dict[str, int]]]] = field(default_factory=dict)

    def look(self) -> None:
        """Ask the nodes that answer."""
        for node in self.nodes:
            if node.http in self.gone:
                continue
            topics = httpx.get(f"http://{node.http}/stats?format=json", headers={"X-Nsq-Extensions": "true"}).json()[
                "topics"
            ]
            counts = {"depth": sum(one["depth"] for one in topics)}
            for topic in topics:
                for channel in topic["channels"]:
                    name = f"{topic['topic_name']}/{channel['channel_name']}"
                    counts |= {f"{name} {state}": channel.get(key, 0) for state, key in STATES}
                    counts["depth"] += channel["depth"]
            self.seen.setdefault(node.http, []).append((time.time(), counts))

    def range(self, node: str, name: str, at: float, within: float) -> tuple[int, int]:
        """Return the least and greatest count of a node in the seconds before, with the counts before and after them."""
        known = self.seen[node]
        first = max((number for number, (when, _) in enumerate(known) if when <= at - within), default=0)
        last = min((number for number, (when, _) in enumerate(known) if when >= at + 1), default=len(known) - 1)
        counts = [one.get(name, 0) for _, one in known[first : last + 1]]
        return min(counts), max(counts)

    def was_true(self, nodes: list[str], name: str, shown: int, at: float, within: float) -> bool:
        """Return whether the nodes together had this count then, or in the seconds before."""
        ranges = [self.range(node, name, at, within) for node in nodes]
        spread = SPREAD if name == "depth" else 0
        return sum(low for low, _ in ranges) - spread <= shown <= sum(high for _, high in ranges) + spread


@dataclass
class Night:
    """The daemons, the open pages, and the truth."""

    lookupd: Daemon
    nodes: list[Daemon]
    url: str
    disk: Path
    context: BrowserContext
    truth: Truth
    stack: ExitStack
    pages: dict[str, Page] = field(default_factory=dict)
    # by page: its time, the nodes in its sums, and those in the sums of its content before
    counted: dict[str, tuple[str, list[str], list[str]]] = field(default_factory=dict)
    refusing: set[str] = field(default_factory=set)  # addresses of nodes that take no messages
    published: int = 0  # messages of topic t

    def open(self) -> None:
        """Open the pages, and have them count their beats."""
        for path in PAGES:
            page = self.pages[path] = self.context.new_page()
            page.goto(self.url + path)
            page.evaluate(_COUNT_BEATS)

    def publish(self, node: Daemon, count: int) -> None:
        publish(node, "t", *["x"] * count)
        self.published += count
        self.truth.look()

    def beat(self) -> str:
        """Publish to each node that answers, compare all pages with the truth, and return their text."""
        for node in self.nodes:
            if node.http not in self.truth.gone | self.refusing:
                self.publish(node, 1)
        for page in self.pages.values():
            page.evaluate("window.beats = 0")
        looks = {}
        for path, page in self.pages.items():
            page.wait_for_function("() => window.beats > 0", timeout=WAIT)
            looks[path] = page.evaluate(_READ)
        self.truth.look()
        for path, found in looks.items():
            self._compare(path, **found)
        return "\n".join(str(found["text"]) for found in looks.values())

    def _compare(self, path: str, at: str, text: str, rows: list[tuple[str, str | None, str | None]]) -> None:
        nodes = [one.http for one in self.nodes]
        counted = [one for one in nodes if not re.search(rf"Node down: [^\n]*{one}", text)]
        ages = {one: re.search(rf"no answer from node \S*{one} .*up to (\d+) s old", text) for one in nodes}
        within = {one: int(age[1]) + 1 if age else CACHED for one, age in ages.items()}
        last_at, last, was_counted = self.counted.get(path, ("", counted, counted))
        was_counted = was_counted if at == last_at else last  # two beats may have the same content
        self.counted[path] = at, counted, was_counted
        name = "depth" if path == "/nodes" else "t/c depth"
        checked = 0
        for words, shown, since in rows:
            own = [one for one in nodes if one in words]
            alarms = [(match, state) for form, state in COUNTS if (match := re.search(form, words, re.DOTALL))]
            if path == "/alarms" and alarms:
                (match, state), *_ = alarms
                of, number, when, count = nodes, whole(match[2]), at, f"{match[1]} {state}"
            elif shown is None or (path == "/" and not re.match(r"t\b", words)) or shown == "-":
                continue
            else:
                if was_counted != counted and not set(own) & set(counted):
                    continue  # the node went down while this page was made
                of, number, count = own or counted, whole(shown), name
                last = re.search(r"Last figures: (\S+ \S+) UTC", words)
                when = since or (f"{last[1]}+00:00" if last else at)
            checked += 1
            moment, longest = datetime.fromisoformat(when).timestamp(), max(within[one] for one in of)
            if path == "/alarms":  # some of its nodes' counts are of that time, others of now
                as_of = re.search(r"as of (\S+) UTC", words.partition("it was:")[0])
                began = datetime.fromisoformat(f"{at[:11]}{as_of[1]}Z").timestamp() if as_of else moment
                longest = max(longest, CHECKED) + moment - began
            # an alarm is of the last check, before or after a node was down
            is_true = any(self.truth.was_true(one, count, number, moment, longest) for one in (of, own or counted))
            known = [self.truth.seen[one][-9:] for one in of]
            assert is_true, f"{path} {words!r}: {count} {number} at {when} of {of}\n{known}\n{text}"
        assert checked or path == "/alarms" or was_counted != counted, (path, text)

    def watch(self, *expected: str) -> str:
        """Compare the pages until they have said all that is expected, for BEATS at least. Returns their last text."""
        missing, beats, text = set(expected), 0, ""
        while missing or beats < BEATS:
            text, beats = self.beat(), beats + 1
            missing = {one for one in missing if not re.search(one, text)}
            assert beats < MOST_BEATS, f"the pages did not say {missing}: {text}"
        return text

    def row(self, node: Daemon) -> Any:
        return self.pages["/nodes"].locator("#live tbody tr", has_text=node.http)


@pytest.fixture(scope="module")
def night(chrome: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Night]:
    directory = tmp_path_factory.mktemp("night")
    (directory / "secret").write_text("the secret of this cluster")
    with ExitStack() as stack:
        disk = stack.enter_context(small_disk(directory / "3", "48m")) if os.geteuid() == 0 else directory / "3"
        lookupd = stack.enter_context(Daemon("nsqlookupd"))
        nodes: list[Daemon] = []
        for number in (1, 2, 3):
            flags = ["-node-id", str(number), "-lookupd-tcp-address", lookupd.tcp, "-cluster-address=127.0.0.1:0",
                     "-cluster-secret-file", str(directory / "secret"), "-failover-quorum=none"]  # fmt: skip
            flags += ["-cluster-peer", nodes[0].addresses["CLUSTER"]] if nodes else issue(directory, -20, 1.5)
            command = (sys.executable, "-c", WRONG_CLOCK) if number == 3 else ()
            listens = ("TCP", "HTTP", "CLUSTER")
            nodes.append(stack.enter_context(nsqd(directory / str(number), *flags, listens=listens, command=command)))
        admin = stack.enter_context(nsqadmin("-lookupd-http-address", lookupd.http, *ALARMS))
        for node in nodes:
            for name in ("t", "held", "slow", "rogue", "poison"):
                post(node, "/topic/create", topic=name)
                post(node, "/channel/create", topic=name, channel="c")
        post(nodes[0], "/topic/create", topic="fails", max_attempts="1")
        post(nodes[0], "/channel/create", topic="fails", channel="c")
        known = f"http://{lookupd.http}/lookup?topic=t"
        eventually(lambda: len(httpx.get(known).json()["producers"]) == 3)
        context = chrome.new_context(bypass_csp=True)  # for what the test evaluates
        stack.callback(context.close)
        found = Night(lookupd, nodes, f"http://{admin.http}", disk, context, Truth(nodes), stack)
        found.truth.look()
        found.open()
        yield found


def test_consumers_fail_crash_and_are_slow_and_a_publisher_is_fast(night: Night, tmp_path: Path) -> None:
    node = night.nodes[0]
    post(node, "/channel/pause", topic="held", channel="c")
    publish(node, "held", "1", "2", "3")
    slow = Conversation(node, b"  V2SUB slow c\nRDY 1\n")
    rogue = Conversation(node, b"  V2")
    host, port = rogue.socket.getsockname()
    ends = x509.load_pem_x509_certificate((night.disk.parent / "cert.pem").read_bytes()).not_valid_after_utc
    missing = {
        "every message fails": r"Messages are being buried[^§]*Check the consumer's log[^§]*fails/c[^§]*buried in .* in all",
        "a slow consumer": r"Backlog growing[^§]*slow/c[^§]*messages, [\d,]+ more in ",
        "a message crashes consumers": r"Consumers crash[^§]*poison/c[^§]*\d consumers disconnected with messages in flight",
        "a rogue publisher": rf"rogue/c[^§]*most from (\S+ )?{host}:{port}",
        "a forgotten pause": r"Paused for long[^§]*Unpause it[^§]*held/c[^§]*paused for .*3 messages waiting",
        "a wrong clock": r"Clocks differ[^§]*Check NTP[^§]*its clock is 1\.5 min ahead of the others",
        "an old certificate": rf"Certificate expires[^§]*--tls-cert expires on {ends:%Y-%m-%d %H:%M:%S} UTC, in 1\.",
    }
    with Consumer("fails", "c", [node.tcp], max_in_flight=10) as failing:
        for beats in range(MOST_BEATS):
            publish(node, "fails", "x", "x")
            publish(node, "poison", "x")
            publish(node, "slow", *["x"] * 20)
            rogue.send(b"MPUB rogue\n" + several(*[b"x"] * 200))
            for message in failing.poll(0.05):
                message.requeue(0)
            with Conversation(node, b"  V2SUB poison c\nRDY 1\n") as crashing:
                crashing.frame()
            text = night.beat()
            missing = {name: one for name, one in missing.items() if not re.search(one, text)}
            if not missing and beats >= BEATS:
                break
    assert not missing, text
    slow.close()
    rogue.close()
    for topic in ("slow", "rogue", "poison", "fails"):
        post(node, "/topic/delete", topic=topic)


def test_a_node_hangs_after_a_burst(night: Night) -> None:
    hung = night.nodes[1]
    night.publish(hung, 100)
    hung.process.send_signal(signal.SIGSTOP)
    night.truth.gone.add(hung.http)
    try:
        night.watch(r"Node down: .*it runs, but has not answered", r"Check the CPU, memory and disk of its host")
    finally:
        hung.process.send_signal(signal.SIGCONT)
    night.truth.gone.clear()
    expect(night.row(hung)).not_to_contain_text("DOWN", timeout=WAIT)
    night.watch()


def test_the_disk_of_a_node_is_full(night: Night) -> None:
    require("root")
    full, volume, row = night.nodes[2], night.disk, night.row(night.nodes[2])
    with (volume / "fill").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(volume).free)
    while httpx.post(f"http://{full.http}/pub?topic=t", content=b"x" * 900_000).status_code == 200:
        night.published += 1
    night.truth.look()
    night.refusing.add(full.http)
    night.watch("degraded: .*Node rejects messages", "Free space: publishing resumes by itself")
    expect(row).to_contain_text(FULL, timeout=WAIT)
    (volume / "fill").unlink()
    expect(row).not_to_contain_text("Node rejects messages", timeout=WAIT)
    night.refusing.clear()


def test_nsqlookupd_dies_and_is_restarted(night: Night) -> None:
    night.lookupd.kill()
    text = night.watch("no answer from nsqlookupd", "nsqlookupd down", "Start it again. It keeps no state")
    assert "The values of nodes that answer are current." in text
    assert "s old" not in text
    again = ("-tcp-address", night.lookupd.tcp, "-http-address", night.lookupd.http)
    night.stack.enter_context(Daemon("nsqlookupd", *again))
    expect(night.pages["/alarms"].locator("#live")).not_to_contain_text("nsqlookupd down", timeout=WAIT)
    expect(night.row(night.nodes[0])).to_contain_text("1 of 1 nsqlookupd", timeout=WAIT)
    night.watch()


def test_a_node_is_killed_after_a_burst_and_another_one_promotes_its_log(night: Night) -> None:
    killed = night.nodes[1]
    night.publish(killed, 100)
    page = night.context.new_page()
    page.goto(f"{night.url}/cluster")
    killed.kill()
    night.truth.gone.add(killed.http)
    text = night.watch(
        r"Node down: .*messages stuck on it.*as of \S+ \S+ UTC", "Start it again on the same data directory"
    )
    assert "Totals exclude this node" in text
    promote = "Promote the log of node 2"
    form = page.locator("form", has_text=promote)
    expect(form.locator("select[name=by] option[value='1']")).to_be_attached(
        timeout=WAIT
    )  # the page offers it by itself
    page.click(f"summary:has-text('{promote}')", timeout=WAIT)
    form.locator("select[name=by]").select_option("1")
    form.locator("input[name=confirm]").fill("2")
    form.locator("button").click()
    night.watch("Node down: .*Node 1 leads its log now and delivers its messages", "promoted by node 1")
    depth = night.pages["/"].locator("#t-t td[data-label=Depth]")
    expect(depth).to_have_text(f"{night.published:,}", timeout=WAIT)
