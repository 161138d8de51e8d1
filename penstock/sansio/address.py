"""Addresses of nsqd: host:port, [v6]:port, or the path of a unix socket (with a slash), also as unix:/path."""


def is_path(address: str) -> bool:
    """Return True for the path of a unix socket."""
    return "/" in address


def path_of(address: str) -> str:
    """Return the path of a unix socket whose address that is."""
    return address.removeprefix("unix:")


def split_address(address: str) -> tuple[str, int]:
    """Split host:port or [v6]:port. Raises ValueError with a reason."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"not an address, expected host:port or the path of a socket: {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_address(address: str) -> str:
    """Return the address itself if it is well formed. Raises ValueError with a reason."""
    if not is_path(address):
        split_address(address)
    return address


def server_name(address: str) -> str:
    """Return the name that the server's certificate must have: the host, or localhost for a unix socket."""
    return "localhost" if is_path(address) else split_address(address)[0]
