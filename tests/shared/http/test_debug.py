"""The debug routes without threads; tests/processes/test_nsqd_observation.py has the others."""

import re

from tests.local_node import LocalNode

_READ = ("", "cmdline", "symbol", "profile", "heap", "goroutine", "block", "threadcreate")
DEBUG_ROUTES = {f"/debug/pprof/{name}": "GET" for name in _READ}
DEBUG_ROUTES |= {"/debug/setblockrate": "PUT", "/debug/freememory": "POST"}


def test_without_the_flag_there_are_no_debug_routes() -> None:
    node = LocalNode()
    for path, method in DEBUG_ROUTES.items():
        answer = node.client.request(method, f"{path}?seconds=1&rate=1")
        assert (answer.status_code, answer.text) == (404, '{"message":"NOT_FOUND"}'), path


def test_what_needs_no_thread() -> None:
    node = LocalNode("-debug-routes")
    heap = node.client.get("/debug/pprof/heap").text
    assert re.search(r"^allocated blocks: \d{5,}$", heap, re.MULTILINE)
    assert "PYTHONTRACEMALLOC" in heap
    for wrong in ("\nfast", "fast", "", "9" * 19):
        rate = node.client.put("/debug/setblockrate", params={"rate": wrong})
        assert (rate.status_code, rate.text) == (400, f"invalid block rate : {wrong!a}\n")
    assert node.client.put("/debug/setblockrate?rate=-1").status_code == 501
    freed = node.client.post("/debug/freememory")
    assert re.fullmatch(r"OK, \d+ objects were unreachable\n", freed.text)
