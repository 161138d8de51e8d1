"""The sockets, and the turn that serves them all. This package knows no protocol.

* `reactor`: one epoll with every TCP connection of the node, and the order of a turn. Start here.
* `connection`: one socket and its peer; `layers`: TLS and compression between the two.
* `acceptor`: the listeners; `endpoint`: which connections each lets in, and which protocol they speak; `admission`: the limits
  and TLS that a connection meets before the broker.
* `promised`: output and HTTP replies that wait for marks of the log; `limits`: replies that wait for a time of their own.
* `unread`: input that was received and not handled; `inflow`: half-received commands, and the memory they may take.
* `timers`, `upkeep`: deadlines, interest in epoll, connections that end.
* `system`: the functions of the operating system that a simulator replaces; other threads wake the epoll.

Of nsqd, this package may import only `core` and `protocols`, and none of the packages in protocols.
"""
