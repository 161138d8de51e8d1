"""Sockets: `reactor` owns one epoll with every plain TCP connection, `connection` is one of them."""
