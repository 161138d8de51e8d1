"""Which ciphers and certificates are strong enough, and what OpenSSL says of those that are not.

See docs/design/security.md#tls.
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
_TOO_WEAK = {  # what OpenSSL says of a certificate below the level -> the highest level that accepts it
    "key too small": 1,
    "key too weak": 1,
    "md too weak": 0,
    "digest algorithm too weak": 0,
}


def at_level(ciphers: str, security_level: int) -> str:
    """Return the list of ciphers, extended to set OpenSSL's security level."""
    return f"{ciphers}:@SECLEVEL={security_level}"


def weakness_advice(reason: str, flag: str = LEVEL_FLAG) -> str:
    """Return a hint to append to OpenSSL's reason: the flag that admits a too weak certificate. "" for other reasons."""
    level = next((level for words, level in _TOO_WEAK.items() if words in reason), None)
    return "" if level is None else f" (below OpenSSL's security level; {flag}={level} admits it)"


def pair_problem(error: Exception, level_flag: str = LEVEL_FLAG) -> str:
    """Return what is wrong with a certificate and its key, in one line. `level_flag` sets this program's security level."""
    reason = (getattr(error, "reason", None) or str(error).partition("\n")[0]).lower().replace("_", " ")
    if "mismatch" in reason or reason in ("no private key assigned", "no certificate assigned"):
        return "tls: private key does not match public key"
    return f"tls: cannot use the certificate or its key: {reason}{weakness_advice(reason, level_flag)}"
