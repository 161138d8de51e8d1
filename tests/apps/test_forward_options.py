"""The flags of nsq_to_nsq and nsq_to_http: their checks, their defaults, and the tables in the documents."""

from typing import Any

import pytest

from apps import nsq_to_http, nsq_to_nsq
from tests.apps.test_apps import own_log, run_main  # noqa: F401
from tests.cases import each

FROM = ("-topic=t", "-nsqd-tcp-address=h:1")
TO = "-destination-nsqd-tcp-address=h:1"
POST = "-post=http://h/"


@each("program, words, code, text", [
    (nsq_to_nsq, (), 1, "--topic and --channel are required"),
    (nsq_to_nsq, (*FROM, "-channel="), 1, "--topic and --channel are required"),
    (nsq_to_nsq, (*FROM, "-topic=a b", TO), 1, "--topic is invalid: 'a b'"),
    (nsq_to_nsq, (*FROM, "-channel=a b", TO), 1, "--channel is invalid"),
    (nsq_to_nsq, (*FROM, "-destination-topic=a b", TO), 1, "--destination-topic is invalid"),
    (nsq_to_nsq, ("-topic=t", TO), 1, "--lookupd-http-address required (nsq_to_nsq -help lists the flags)"),
    (nsq_to_nsq, (*FROM, "-nsqd-tcp-address=tcp://h:1", TO), 1, "--nsqd-tcp-address error - address should not"),
    (nsq_to_nsq, (*FROM, TO.replace("=", "=tcp://")), 1, "--destination-nsqd-tcp-address error - address should not"),
    (nsq_to_nsq, (*FROM, TO, "-lookupd-http-address=h:2"), 1, "not both"),
    (nsq_to_nsq, FROM, 1, "--destination-nsqd-tcp-address required (nsq_to_nsq -help lists the flags)"),
    (nsq_to_nsq, (*FROM, "-destination-nsqd-tcp-address=h"), 1, "not an address"),
    (nsq_to_nsq, (*FROM, TO, "-mode=all"), 2, 'invalid value "all" for flag -mode: expected one of round-robin'),
    (nsq_to_nsq, (*FROM, TO, "-status-every=-1"), 2, "must not be negative"),
    (nsq_to_nsq, (*FROM, TO, "-max-in-flight=0"), 1, "max_in_flight must be at least 1"),
    (nsq_to_nsq, (*FROM, TO, "-producer-opt=nix,1"), 2, "invalid option nix"),
    (nsq_to_nsq, ("-h",), 0, "Usage of nsq_to_nsq:"), (nsq_to_http, (POST,), 1, "--topic and --channel are required"),
    (nsq_to_http, (*FROM, POST, "-header=x"), 1, "--header value format should be 'key: value'"),
    (nsq_to_http, (*FROM, POST, "-header=x:"), 1, "--header value format should be 'key: value'"),
    (nsq_to_http, (*FROM, POST, "-header=x y: 1"), 1, "not a header that HTTP allows"),
    (nsq_to_http, (*FROM, POST, "-header=x: 1\r\ny: 2"), 1, "not a header that HTTP allows"),
    (nsq_to_http, (*FROM, POST, "-header=Host: x"), 1, "cannot be chosen"),
    (nsq_to_http, (*FROM, "-get=http://h/%s", "-content-type=a/b"), 1, "--content-type only used with --post"),
    (nsq_to_http, (*FROM, POST, "-content-type="), 1, "--content-type requires a value when used"),
    (nsq_to_http, ("-topic=t", POST), 1, "--lookupd-http-address required (nsq_to_http -help lists the flags)"),
    (nsq_to_http, (*FROM, "-nsqd-tcp-address=tcp://h:1", POST), 1, "address should not contain scheme"),
    (nsq_to_http, (*FROM, POST, "-lookupd-http-address=h:2"), 1, "not both"),
    (nsq_to_http, FROM, 1, "--get or --post required"),
    (nsq_to_http, (*FROM, POST, "-get=http://h/%s"), 1, "use --get or --post not both"),
    (nsq_to_http, (*FROM, "-get=http://h/"), 1, "invalid GET address - must be a printf string"),
    (nsq_to_http, (*FROM, "-get=http://h/%s%s"), 1, "invalid GET address - must be a printf string"),
    (nsq_to_http, (*FROM, "-post=h:80/x"), 1, "invalid address h:80/x: not an http or https URL"),
    (nsq_to_http, (*FROM, POST, "-sample=1.5"), 1, "--sample must be between 0.0 and 1.0"),
    (nsq_to_http, (*FROM, POST, "-sample=nan"), 1, "--sample must be between 0.0 and 1.0"),
    (nsq_to_http, (*FROM, POST, "-n=0"), 1, "-n must be at least 1"),
    (nsq_to_http, (*FROM, POST, "-mode=all"), 2, 'invalid value "all" for flag -mode: expected one of round-robin'),
    (nsq_to_http, (*FROM, POST, "-http-client-request-timeout=-1s"), 2, "must not be negative"),
    (nsq_to_http, ("-help",), 0, "Usage of nsq_to_http:"),
])  # fmt: skip
@pytest.mark.usefixtures("own_log")
@pytest.mark.process
def test_flags(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: Any, words: Any, code: int, text: str
) -> None:
    assert run_main(monkeypatch, program, *words) == code
    printed = capsys.readouterr().err
    assert text in printed
    assert code == 0 or printed.count("\n") == 1


@pytest.mark.usefixtures("own_log")
@each("program", [nsq_to_nsq, nsq_to_http])
def test_the_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], program: Any) -> None:
    assert run_main(monkeypatch, program, "-version") == 0
    assert capsys.readouterr().out.startswith(f"{program.PROGRAM} v1.3.0")


def test_what_all_requests_have_in_common() -> None:
    options = nsq_to_http.Options(
        topic="t", nsqd_tcp_address=("h:1",), post=("http://h/",), header=("X-A: b: c", "x-a:d")
    )
    form = nsq_to_http.check(options)
    assert (form.method, form.connect_timeout_s, form.request_timeout_s) == ("POST", 2.0, 20.0)
    assert form.headers == {
        "user-agent": "nsq_to_http v1.3.0", "accept-encoding": "gzip", "content-type": "application/octet-stream", "x-a": "d",
    }  # fmt: skip
    options = nsq_to_http.Options(topic="t", nsqd_tcp_address=("h:1",), get=("http://h/%s",))
    assert "content-type" not in nsq_to_http.check(options).headers


def test_passwords_of_addresses_are_not_logged() -> None:
    assert nsq_to_http._shown("http://me:secret@h:1/x?y=%s") == "http://h:1/x?y=%s"
    assert nsq_to_http._shown("http://h/@") == "http://h/@"
