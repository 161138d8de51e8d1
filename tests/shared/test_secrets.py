"""/config and /debug/pprof/cmdline hide what is a secret."""

import sys
from typing import Any

from shared.secrets import hide
from tests.cases import each


@each(
    "value, shown",
    [
        ("http://auth.example/?token=hunter2", "http://auth.example/?***"),
        ("-auth-http-address=http://auth.example/?token=hunter2", "-auth-http-address=http://auth.example/?***"),
        ("http://user:hunter2@auth.example/path", "http://***@auth.example/path"),
        ("http://user:hun@ter2@auth.example/?token=x", "http://***@auth.example/?***"),
        ("http://auth.example/?token=a@b", "http://***"),  # rather too much is hidden than too little
        ("http://user:hun?ter2@auth.example/?token=a", "http://***"),
        ("auth.example:80/?token=hunter2", "auth.example:80/?***"),
        ("-auth-http-address=auth.example:80?token=hunter2", "-auth-http-address=auth.example:80?***"),
        ("user:hunter2@auth.example:80", "***@auth.example:80"),
        ("-mem-queue-size=100", "-mem-queue-size=100"),
        ("/var/lib/nsq", "/var/lib/nsq"),
        (("http://a/?b", "c"), ("http://a/?***", "c")),
        ("unix:/run/a.sock?mode=660&user=nsq", "unix:/run/a.sock?mode=660&user=nsq"),  # read back from --print-config
        ("unix:/run/a.sock?mode=660&token=hunter2", "unix:/run/a.sock?***"),
        (7, 7),
    ],
)
def test_secrets_are_hidden(value: Any, shown: Any) -> None:
    assert hide(value) == shown


def test_the_program_itself_is_shown() -> None:
    assert [hide(word) for word in sys.orig_argv[:1]] == sys.orig_argv[:1]
