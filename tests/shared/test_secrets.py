"""/config and /debug/pprof/cmdline hide what is a secret."""

import sys
from typing import Any

from shared.secrets import hide
from tests.cases import each


@each("value, shown", [
    ("127.0.0.1:4160", "127.0.0.1:4160"), ("[::1]:4160", "[::1]:4160"), ("http://h:1/path", "http://h:1/path"),
    ("http://u:p@h:1/path", "http://***@h:1/path"), ("http://token@h", "http://***@h"), ("http://u:p\n@h", "http://***@h"),
    ("http://u:p@ss/w?rd@h/x", "http://***"),  # the last @ may be part of an argument
    ("http://auth.example/?token=hunter2", "http://auth.example/?***"),
    ("-auth-http-address=http://auth.example/?token=hunter2", "-auth-http-address=http://auth.example/?***"),
    ("http://user:hun@ter2@auth.example/?token=x", "http://***@auth.example/?***"),
    ("http://auth.example/?token=a@b", "http://***"),  # rather too much is hidden than too little
    ("http://user:hun?ter2@auth.example/?token=a", "http://***"), ("auth.example:80/?token=hunter2", "auth.example:80/?***"),
    ("-auth-http-address=auth.example:80?token=hunter2", "-auth-http-address=auth.example:80?***"),
    ("user:hunter2@auth.example:80", "***@auth.example:80"), ("-mem-queue-size=100", "-mem-queue-size=100"),
    ("/srv/a:b@c", "/srv/a:b@c"), ("[nsqd] ", "[nsqd] "), ("", ""), (5, 5), (("a", "x:y@z"), ("a", "***@z")),
    (["x:y@z"], ["***@z"]), (("http://a/?b", "c"), ("http://a/?***", "c")),
    ("unix:/run/a.sock?mode=660&user=nsq", "unix:/run/a.sock?mode=660&user=nsq"),  # read back from --print-config
    ("unix:/run/a.sock?mode=660&token=hunter2", "unix:/run/a.sock?***"),
    (sys.orig_argv[:1], sys.orig_argv[:1]),  # the program itself
])  # fmt: skip
def test_secrets_are_hidden(value: Any, shown: Any) -> None:
    assert hide(value) == shown
