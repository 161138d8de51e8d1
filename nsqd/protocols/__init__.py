"""Wire protocols, sans-IO: bytes in, bytes out; the same object serves reactor, TLS task, test and fuzzer."""
