"""Which ciphers and certificates are strong enough, and what OpenSSL says of those that are not.

See docs/reference/configuration.md#tls.
"""

# TLS 1.2: only forward secrecy. CBC with SHA-256 or better stays for clients from before 2014. TLS 1.3 has its own
# list. All of these are good, so the client's preference decides: Go's clients get AES-128, and stats shows the names
# that they have in the original.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20:ECDHE+AES:!aNULL:!eNULL:!PSK:!SHA1:!AESCCM"
# The ciphers when we are the client: Python's own default.
CLIENT_CIPHERS = "ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
# OpenSSL's level: 2 wants RSA keys of 2048 bits, 1 accepts those of 1024, 0 also signatures of SHA-1. Go has none.
SECURITY_LEVEL = 2
LEVEL_FLAG = "-tls-security-level"
# What OpenSSL says of a certificate below its level. Keys have levels (RSA: 1 wants 1,024 bits), weak digests only level 0.
_WEAK_KEYS = ("key too small", "key too weak")
_WEAK_DIGESTS = ("md too weak", "digest algorithm too weak")


def at_level(ciphers: str, security_level: int) -> str:
    """Return the list of ciphers, extended to set OpenSSL's security level."""
    return f"{ciphers}:@SECLEVEL={security_level}"


def weakness_advice(reason: str, flag: str = LEVEL_FLAG, level: int = SECURITY_LEVEL) -> str:
    """Return a hint to append to OpenSSL's reason: which level of the flag admits a too weak certificate.

    `level` is the level in use, as far as the caller knows it. Without a flag, the hint asks for a stronger certificate. It is
    "" for other reasons, and where no level helps.
    """
    is_key = any(part in reason for part in _WEAK_KEYS)
    if not level or not (is_key or any(part in reason for part in _WEAK_DIGESTS)):
        return ""
    if not flag:
        return " (below OpenSSL's security level: use RSA keys of 2048 bits at least, and SHA-256)"
    if is_key and level > 1:
        return (
            f" (below OpenSSL's security level; {flag}=1 admits RSA keys of 1024 bits or more, {flag}=0 smaller ones)"
        )
    return f" (below OpenSSL's security level; {flag}=0 admits it)"


def pair_problem(error: Exception, flag: str = LEVEL_FLAG, level: int = SECURITY_LEVEL) -> str:
    """Return the error of a certificate and its key, in one line. `flag` and `level` are as for `weakness_advice`."""
    reason = (getattr(error, "reason", None) or str(error).partition("\n")[0]).lower().replace("_", " ")
    if "mismatch" in reason or reason in ("no private key assigned", "no certificate assigned"):
        return "tls: private key does not match public key"
    return f"tls: cannot use the certificate or its key: {reason}{weakness_advice(reason, flag, level)}"
