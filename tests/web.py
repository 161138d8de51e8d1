"""httpx's functions for tests that speak plain HTTP, also over a unix socket.

They read no certificate authorities, which takes 70 ms of CPU for each client. `verify=context` asks over TLS, as with httpx.
"""

from __future__ import annotations

import ssl
from functools import partial

import httpx

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it trusts nobody

get = partial(httpx.get, verify=NO_TLS)
post = partial(httpx.post, verify=NO_TLS)
put = partial(httpx.put, verify=NO_TLS)
request = partial(httpx.request, verify=NO_TLS)
stream = partial(httpx.stream, verify=NO_TLS)
Client = partial(httpx.Client, verify=NO_TLS)
HTTPTransport = partial(httpx.HTTPTransport, verify=NO_TLS)
