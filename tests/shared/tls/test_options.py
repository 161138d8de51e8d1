"""The options of TLS that all daemons share: what contradicts itself, and what one of them implies."""

from pathlib import Path

from shared.tls.options import REQUIRED, TlsOptions, https_problems, load_certificates
from tests.cases import each
from tests.certificates import Authority


@each("options, wrong", [
    (TlsOptions(), ""), (TlsOptions(https_address=":1"), "--https-address needs --tls-cert and --tls-key"),
    (TlsOptions(tls_cert="c", tls_key="k", tls_required=REQUIRED), "so it needs --https-address"),
    (TlsOptions(tls_cert="c", tls_key="k", tls_required="tcp-https"), ""),
    (TlsOptions(tls_cert="c", tls_key="k", tls_required=REQUIRED, https_address=":1"), ""),
])  # fmt: skip
def test_the_address_for_https_and_the_certificate_belong_together(options: TlsOptions, wrong: str) -> None:
    assert wrong in "".join(https_problems(options))
    assert bool(wrong) is bool(https_problems(options))


def test_certificates_are_loaded_if_there_are_any(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert load_certificates(TlsOptions()) is None
    assert load_certificates(TlsOptions(tls_cert=authority.cert, tls_key=authority.key)) is not None
