"""The names of nsq_to_file's files, and when a file ends."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.to_file.names import at_time, host, strftime, topic_format, with_revision
from apps.to_file.rotation import Limits, OpenFile, fitting, reason_to_rotate
from tests.cases import each

CET = timezone(timedelta(hours=1), "CET")
NEWFOUNDLAND = timezone(timedelta(hours=-3, minutes=-30), "NST")
NIGHT = datetime(2006, 1, 2, 0, 4, 5, tzinfo=CET)
AFTERNOON = datetime(2019, 11, 30, 15, 59, 0, tzinfo=NEWFOUNDLAND)
FORMAT = "<TOPIC>.<HOST><REV>.<DATETIME>.log"


@each("format, night, afternoon", [
    ("%B %b %m", "January Jan 01", "November Nov 11"), ("%A %a %d", "Monday Mon 02", "Saturday Sat 30"),
    ("%H %I %p", "00 12 AM", "15 03 PM"), ("%M:%S", "04:05", "59:00"), ("%Y %y", "2006 06", "2019 19"),
    ("%Z %z", "CET +0100", "NST -0330"), ("%%Y", "%Y", "%Y"), ("2006-01 %Q 100%", "2006-01 %Q 100%", "2006-01 %Q 100%"),
    ("%Y-%m-%d_%H", "2006-01-02_00", "2019-11-30_15"),
])  # fmt: skip
def test_tokens_of_a_date_are_replaced_and_all_else_stays(format: str, night: str, afternoon: str) -> None:
    assert (strftime(format, NIGHT), strftime(format, AFTERNOON)) == (night, afternoon)


@given(st.datetimes(min_value=datetime(1000, 1, 1)), st.sampled_from("BbmAadHIMSYyp"))
def test_a_token_is_what_the_c_library_prints(when: datetime, token: str) -> None:
    assert strftime("%" + token, when.replace(tzinfo=CET)) == when.strftime("%" + token)


def test_a_name_is_made_of_topic_host_process_date_and_revision() -> None:
    format = topic_format("<TOPIC>/<HOST>-<PID><REV>.<DATETIME>", "orders", "web1", 77, gzip=True, has_revisions=True)
    assert with_revision(at_time(format, "%d", NIGHT), 12) == "orders/web1-77-000012.02.gz"
    assert topic_format(FORMAT, "t", "h", 1, gzip=False, has_revisions=False) == "t.h.<DATETIME>.log"
    assert topic_format("<REV>.gz", "t", "h", 1, gzip=True, has_revisions=True) == "<REV>.gz"
    with pytest.raises(ValueError, match="missing <REV> in --filename-format when gzip, rotation, or work dir enabled"):
        topic_format("<TOPIC>.log", "t", "h", 1, gzip=False, has_revisions=True)
    assert host("", "web1.example.org") == "web1"
    assert host("<SHORT_HOST>/<HOSTNAME>-x", "web1.example.org") == "web1/web1.example.org-x"


def test_a_file_ends_for_its_name_its_age_and_its_size() -> None:
    file = OpenFile("a", "/out/a", opened_at=100.0, size=50)
    limits = Limits(size=50, interval=10.0)
    assert reason_to_rotate(file, "a", 110.0, limits) == ""
    assert reason_to_rotate(file, "b", 100.0, limits) == "new filename b"
    assert reason_to_rotate(file, "a", 111.5, limits) == "11.5s since last open"
    file.size = 51
    assert reason_to_rotate(file, "a", 110.0, limits) == "/out/a currently 51 bytes (> 50)"
    assert reason_to_rotate(file, "a", 1e9, Limits()) == ""


@given(st.lists(st.integers(1, 100)), st.integers(0, 300), st.integers(1, 300))
def test_as_many_messages_fit_as_the_original_writes_before_it_rotates(sizes: list[int], used: int, limit: int) -> None:
    written = 0
    for size in sizes:
        if used > limit:
            break
        used, written = used + size, written + 1
    assert fitting(sizes, used - sum(sizes[:written]), Limits(size=limit)) == written
    assert fitting(sizes, used, Limits()) == len(sizes)
