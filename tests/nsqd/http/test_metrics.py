"""The names of /metrics that dashboards for nsqd have."""

import re

from tests.local_node import LocalNode
from tests.nsqd.http.raw import ask


def test_the_figures_of_a_node_have_names() -> None:
    text = ask(LocalNode(), "GET", "/metrics").body.decode()
    for name in (
        "nsqd_topics",
        "nsqd_queue_scan_workers",
        "nsqd_queue_scan_passes_total",
        "nsqd_queue_scan_dirty_ratio",
    ):
        assert re.search(rf"^{name} \d", text, re.MULTILINE), name
