"""When certificates end: read from the files, and what is said of it at a time that the test chooses."""

import dataclasses
import logging
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from admin.options import AdminOptions
from lookupd.options import LookupdOptions
from nsqd.options import NsqdOptions
from shared.log import log
from shared.tls.dates import DAY, SOON, CertificateDates, certificates_of, validity
from tests.cases import each

DER = ssl.PEM_cert_to_DER_cert(trustme.CA().cert_pem.bytes().decode())
BEGINS, ENDS = 1_700_000_000, 1_700_000_000 + 90 * DAY


@dataclass(frozen=True)
class Options:
    tls_cert: str = ""
    tls_key: str = ""
    tls_root_ca_file: str = ""
    cluster_tls_ca: str = ""
    verbose: bool = True


def issue(
    directory: Path, name: str = "cert.pem", begins: int = BEGINS, ends: int = ENDS, ca: trustme.CA | None = None
) -> str:
    """Write a certificate with these dates, followed by that of its authority, and return its path."""
    dates = {"not_before": datetime.fromtimestamp(begins, UTC), "not_after": datetime.fromtimestamp(ends, UTC)}
    authority = ca or trustme.CA()
    leaf = authority.issue_cert("localhost", **dates)
    path = directory / name
    path.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems) + authority.cert_pem.bytes())
    return str(path)


def report(options: Options, now: int) -> tuple[list[str], list[str]]:
    dates = CertificateDates(options, lambda: float(now))
    return dates.errors(), dates.warnings()


def test_the_authority_that_is_valid_for_the_longest_time_counts(tmp_path: Path) -> None:
    files = [issue(tmp_path, f"{ends}.pem", ends=ends) for ends in (ENDS, ENDS + DAY, ENDS - DAY)]
    end = "-----END CERTIFICATE-----\n"
    firsts = [Path(one).read_text().partition(end)[0] + end for one in files]
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("# authorities\n" + "".join(firsts))
    options = Options(tls_root_ca_file=str(bundle), cluster_tls_ca=files[0])
    found = {one.option: one.ends for one in certificates_of(options)}
    assert found["tls-root-ca-file"] == ENDS + DAY
    assert report(Options(tls_root_ca_file=str(bundle)), ENDS + 60)[0] == [], "one of them is valid"
    assert set(found) == {"tls-root-ca-file", "cluster-tls-ca"}


@each("options", [NsqdOptions, LookupdOptions, AdminOptions])
def test_no_option_of_a_daemon_that_names_certificates_is_forgotten(tmp_path: Path, options: type) -> None:
    path = issue(tmp_path)
    about = {one.name for one in dataclasses.fields(options) if "tls" in one.name or "root_ca" in one.name}
    others = {name for name in about if not name.endswith(("_cert", "_ca", "_ca_file"))}
    expected = {name.replace("_", "-") for name in about - others}
    assert {one.option for one in certificates_of(options(**dict.fromkeys(about - others, path)))} == expected
    keys = ("_key", "_address", "_policy", "_required", "_version", "_level", "_verify", "tls_v1")
    assert all(name.endswith(keys) for name in others), others


def test_what_check_config_says(tmp_path: Path) -> None:
    path = issue(tmp_path)
    options = Options(tls_cert=path)
    assert report(options, BEGINS) == report(options, ENDS - SOON - 1) == ([], [])
    line = f"--tls-cert {path}: the certificate expires in 14 days, on 2024-02-12 22:13:20 UTC: renew it"
    assert report(options, ENDS - SOON) == ([], [line])
    assert " in 2 hours, " in report(options, ENDS - 7200)[1][0]
    line = f"--tls-cert {path}: the certificate expired on 2024-02-12 22:13:20 UTC: renew it"
    assert report(options, ENDS + 1) == ([line], [])
    line = f"--tls-cert {path}: the certificate is not valid before 2023-11-14 22:13:20 UTC: check the clock"
    assert report(options, BEGINS - 1) == ([line], [])


@pytest.fixture
def lines() -> Iterator[list[tuple[int, str]]]:
    found: list[tuple[int, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    log.addHandler(handler)
    yield found
    log.removeHandler(handler)


def test_the_log_warns_once_a_day(tmp_path: Path, lines: list[tuple[int, str]]) -> None:
    path, now = issue(tmp_path), [float(ENDS - SOON - 1)]
    dates = CertificateDates(Options(tls_cert=path), lambda: now[0])
    dates.warn()
    assert lines == []
    for hour in range(48):
        now[0] = ENDS - SOON + hour * 3600.0
        dates.warn()
    days = {(ENDS - SOON + hour * 3600) // DAY for hour in range(48)}
    assert [level for level, _ in lines] == [logging.WARNING] * len(days)
    now[0] = ENDS + 1.0
    dates.warn()
    assert (lines[-1][0], "expired on" in lines[-1][1]) == (logging.ERROR, True)
    assert dates.left() == [("tls-cert", -1.0)]


def test_a_reload_reads_the_files_again(tmp_path: Path) -> None:
    path = issue(tmp_path)
    dates = CertificateDates(Options(tls_cert=path), lambda: float(BEGINS))
    assert dates.left() == [("tls-cert", 90.0 * DAY)]
    issue(tmp_path, ends=ENDS + DAY)
    assert dates.left() == [("tls-cert", 90.0 * DAY)]
    dates.reload()
    assert dates.left() == [("tls-cert", 91.0 * DAY)]


@each("year", [1970, 2049, 2050, 2300])
def test_dates_of_both_forms(tmp_path: Path, year: int) -> None:
    ends = int(datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    der = ssl.PEM_cert_to_DER_cert(
        Path(issue(tmp_path, begins=0, ends=ends)).read_text().partition("-----END")[0] + "-----END CERTIFICATE-----"
    )
    assert validity(der) == (0, ends)
    known = x509.load_der_x509_certificate(der)
    assert known.not_valid_after_utc == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ends)


@each("content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"])
def test_files_without_a_certificate_are_left_out(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.pem"
    path.write_bytes(content)
    assert certificates_of(Options(tls_cert=str(path), tls_root_ca_file=str(tmp_path / "missing"))) == []
    assert certificates_of(Options(tls_cert="\0")) == []


@given(st.data())
def test_a_file_may_hold_anything(data: st.DataObject) -> None:
    der = bytearray(DER)
    for _ in range(data.draw(st.integers(0, 4))):
        der[data.draw(st.integers(0, len(der) - 1))] = data.draw(st.integers(0, 255))
    try:
        begins, ends = validity(bytes(der[: data.draw(st.integers(0, len(der)))]))
    except (ValueError, IndexError):
        return
    assert isinstance(begins, int)
    assert isinstance(ends, int)
