"""Own the sockets, and run the turn that serves them all; this package knows no protocol.

* `reactor`: one epoll with every TCP connection of the node, and the order of a turn. Start here.
* `connection`: one socket and the peer behind it; `layers`: TLS and compression between the two.
* `acceptor`: which connections are let in; `edge`: the limits and TLS that a connection meets before the broker.
* `promised`: replies that wait for the log.
* `unread`: input that needs no network any more; `inflow`: half-received commands, and the memory they may take.
* `timers`, `upkeep`: deadlines, interest in epoll, connections that end.
"""
