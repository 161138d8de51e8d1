"""One name for one thing: no two classes of nsqd have the same name, except for those that each protocol has."""

import re
from collections import defaultdict

from tests.project.code import sources

# of the protocols of NSQ, beanstalkd, Disque and HTTP, or of their front ends
EACH_PROTOCOL = {"Client", "Context", "FrontEnd", "Need", "OtherNodes", "Peer", "ServerFigures"}


def test_no_class_name_is_there_twice() -> None:
    places = defaultdict(list)
    for path, text in sources("nsqd").items():
        for name in re.findall(r"^ *class (\w+)\b.*:", text, re.MULTILINE):
            places[name].append(path)
    assert len(places) > 500
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in twice.items() if name not in EACH_PROTOCOL} == {}
    assert twice.keys() == EACH_PROTOCOL, "remove those that have one place now"
