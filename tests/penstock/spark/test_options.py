"""Options that users may give, and the errors of all others."""

import pytest

from penstock.spark.options import (
    OptionError,
    Start,
    channel_options,
    from_comment,
    read_options,
    table_options,
    to_comment,
    write_options,
)
from tests.cases import each

GOOD = {"nsqd": "h:1", "topic": "t"}


def test_names_may_have_any_case() -> None:
    options = read_options(
        {"LOOKUPD": "http://a:1/, b:2", "TOPICS": "x, y.z", "maxrecordspertrigger": "5", "FAILONDATALOSS": "False"}
    )
    assert options.lookupd == ("a:1", "b:2")
    assert options.topics == ("x", "y.z")
    assert options.max_records == 5
    assert not options.fails_on_loss
    assert options.starting == Start()
    assert read_options({"nsqd": "h:1", "topicPattern": "a.*"}).pattern == "a.*"
    with pytest.raises(OptionError, match="option topicPattern"):
        read_options({"nsqd": "h:1", "topicPattern": "("})


@each("value, start", [
    ({"startingOffsets": "earliest"}, Start(word="earliest")),
    ({"startingOffsets": '{"t/617": 42}'}, Start(offsets={"t/617": 42})),
    ({"startingTimestamp": "1763719200000"}, Start(time="2025-11-21T10:00:00+00:00")),
    ({"startingTimestamp": "2025-11-21T10:00:00Z"}, Start(time="2025-11-21T10:00:00+00:00")),
])  # fmt: skip
def test_where_to_begin(value: dict[str, str], start: Start) -> None:
    assert read_options(GOOD | value).starting == start


@each("wrong, why", [
    ({"nsqd": ""}, "option nsqd=''"), ({"nsqd": "host"}, "'host' is not host:port"), ({"nsqd": "h:1/x"}, "not host:port"),
    ({"lookupd": "h:2"}, "exactly one of the options nsqd, lookupd; there is nsqd and lookupd"),
    ({"topics": "a"}, "exactly one of the options topic, topics, topicPattern"),
    ({"topic": "a b"}, "option topic='a b': 'a b' is not a valid topic name"),
    ({"topic": "../x"}, "not a valid topic name"), ({"mode": "magic"}, "option mode='magic'"),
    ({"startingOffsets": "sometime"}, "option startingOffsets='sometime': expected earliest, latest or JSON"),
    ({"startingOffsets": '{"t/1": -1}'}, "expected earliest, latest or JSON"),
    ({"startingOffsets": "[1]"}, "expected earliest, latest or JSON"),
    ({"startingTimestamp": "yesterday"}, "option startingTimestamp='yesterday'"),
    ({"startingTimestamp": "2025-11-21T10:00:00"}, "has no time zone"),
    ({"startingTimestamp": "1", "startingOffsets": "latest"}, "exclude each other"),
    ({"maxRecordsPerTrigger": "0"}, "option maxRecordsPerTrigger='0': expected a whole number of at least 1"),
    ({"maxRecordsPerTrigger": "1e6"}, "expected a whole number"),
    ({"failOnDataLoss": "no"}, "option failOnDataLoss='no': expected true or false"),
    ({"cursorName": "a/b"}, "option cursorName='a/b'"),
    ({"cursorName": "c", "cursorHold": "bogus"}, "option cursorHold='bogus': expected a duration"),
    ({"maxInFlight": "5"}, "option maxInFlight is for mode=channel"), ({"channel": "c"}, "option channel is for mode=channel"),
    ({"maxRecordsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "exclude each other"),
    ({"cursorHold": "48h"}, "option cursorHold='48h' needs the option cursorName"),
    ({"startingOfsets": "latest"}, r"option 'startingofsets' is not known; did you mean startingOffsets\?"),
    ({"what": "latest"}, "option 'what' is not known; there are mode, nsqd, lookupd"),
])  # fmt: skip
def test_what_makes_no_sense_is_named(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why.replace("(", r"\(")):
        read_options(GOOD | wrong)


@each("wrong, why", [
    ({"topic": "#"}, "not a valid topic name"), ({"chunkRecords": "x"}, "option chunkRecords='x'"),
    ({"jobName": "a b"}, "option jobName='a b'"),
    ({"channel": "a b"}, "option channel='a b' is not a valid channel name"),
    ({"channel": "c", "topic": ""}, "option channel='c' needs the option topic"),
    ({"startingOffsets": "latest"}, "not known"),
])  # fmt: skip
def test_of_a_sink(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        write_options(GOOD | wrong)
    assert write_options(GOOD | {"checkpointLocation": "x"}).topic == "t"


@each("wrong, why", [
    ({"topic": ""}, "mode=channel wants option topic"), ({"channel": ""}, "mode=channel wants option channel"),
    ({"stagingLocation": ""}, "mode=channel wants option stagingLocation"),
    ({"startingOffsets": "latest"}, "startingOffsets has no meaning"), ({"channel": "#"}, "is not a valid channel name"),
])  # fmt: skip
def test_of_a_channel(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        channel_options(GOOD | {"mode": "channel", "channel": "c", "stagingLocation": "s"} | wrong)


def test_the_options_of_a_table_are_in_a_comment() -> None:
    created = {"option.topicPattern": r"it's\..*", "option.nsqd": "h:1", "nsqd": "h:1", "owner": "me"}
    options = table_options(created)
    assert options == {"topicpattern": r"it's\..*", "nsqd": "h:1"}
    assert from_comment(to_comment(options)) == options
    assert table_options(GOOD) == from_comment("the topic's name") == {}
    for changed in ("nsq {", "nsq [1]"):
        with pytest.raises(OptionError, match="comment of the table's column topic was changed"):
            from_comment(changed)
