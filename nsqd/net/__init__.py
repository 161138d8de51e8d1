"""Sockets, and the turn that serves them all; no protocol is known here.

* `reactor`: one epoll with every TCP connection of the node, and the order of a turn. Start here.
* `connection`: one socket and the peer behind it; `layers`: TLS and compression between the two.
* `acceptor`: who is let in; `edge`: what a connection meets before it meets the broker.
* `promised`: replies that wait for the log.
* `unread`: input that needs no network any more; `inflow`: half-received commands, and the memory they may take.
* `timers`, `upkeep`: deadlines, interest in epoll, connections that end.
"""
