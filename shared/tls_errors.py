"""Why a TLS handshake or connection failed, in one line for the log."""

from __future__ import annotations

import ssl


def describe_failure(error: BaseException) -> str:
    """E.g. "certificate verify failed: self-signed certificate", or "peer did not return a certificate"."""
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = str(why).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        text += f": {error.verify_message}"
    return text
