"""The requests of HTTP that nsqd answers in the turn: /pub, /mpub, health and the statistics of a topic.

* `peer`: one client of HTTP: answers, and the connection handed over at the first other request. Start here.
* `head`: which heads of requests have the common shape.
* `publishers`: how many messages each address has published.

Every other request leaves the reactor together with its connection, and is answered by uvicorn in the HTTP thread, which reads
HTTP exactly. Of nsqd, this package may import only `core` and the modules that protocols have in common.
"""
