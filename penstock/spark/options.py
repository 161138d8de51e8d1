"""The options of sources and sinks, checked before any job starts. Spark passes names in any case, and values as text."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches

EARLIEST, LATEST = "earliest", "latest"
_DURATION = re.compile(r"([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|ms|s|m|h))+")  # as Go writes them
_TOPIC = re.compile(r"[.a-zA-Z0-9_-]{1,64}(#ephemeral)?")
_LOG_NAMES = (
    "nsqd", "lookupd", "topic", "topics", "topicPattern", "startingOffsets", "endingOffsets", "startingTimestamp",
    "endingTimestamp", "maxRecordsPerTrigger", "maxBytesPerTrigger", "minPartitions", "failOnDataLoss", "cursorName",
    "cursorHold", "includeHeaders", "nodeWaitMs", "pollMs", "maxFetchBytes", "offsetsLocation",
)  # fmt: skip
_CHANNEL_NAMES = (
    "nsqd", "lookupd", "topic", "channel", "stagingLocation", "stagingMaxBytes", "maxInFlight", "maxRecordsPerTrigger",
    "minPartitions", "pollMs", "dedupeWindowMs",
)  # fmt: skip
_NAMES = ("mode", *dict.fromkeys(_LOG_NAMES + _CHANNEL_NAMES))
_SINK_NAMES = ("nsqd", "lookupd", "topic", "channel", "chunkRecords", "chunkBytes", "jobName", "recordsPerSecond")
# options that Spark adds itself
_SPARK_NAMES = {"mode", "path", "checkpointlocation", "queryname", "outputmode"}
_TABLE = "option."  # how CREATE TABLE ... USING nsq OPTIONS begins the names of options
_COMMENT = "nsq "  # how the comment that has the options of such a table begins
_JOB = re.compile(r"[!-~]{1,64}")


class OptionError(ValueError):
    """An option is wrong; one line names the option and its value, and says what it must be."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin or end: a word, a time or offsets; only one of the three is set."""

    word: str = ""  # EARLIEST or LATEST
    time: str = ""  # RFC 3339: the first message published at this time or later
    offsets: Mapping[str, int] = field(default_factory=dict)  # by "topic/node"; other places as `word`


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a source in log mode, which reads what topics retain."""

    nsqd: tuple[str, ...]
    lookupd: tuple[str, ...]
    topics: tuple[str, ...]
    pattern: str  # the pattern of topic names; "": the topics are named
    starting: Start
    ending: Start  # for batch reads
    has_end: bool  # the user gave an end
    max_records: int  # of a micro-batch; 0: no limit
    max_bytes: int  # of a micro-batch; 0: no limit
    min_partitions: int
    fails_on_loss: bool
    cursor: str  # name of a cursor on nsqd; "": none
    hold: str  # how long the cursor holds messages that it has not read, as a duration; "": not at all
    headers: bool
    node_wait: float  # s that a read waits for a node that does not answer
    poll: float  # s that an idle query waits for new messages in one call
    fetch: int  # bytes of one answer
    offsets: str  # a directory of the driver for the offsets of idle topics; "": all are in each batch


@dataclass(frozen=True, slots=True)
class ChannelOptions:
    """The options of a source in channel mode, which consumes a channel."""

    nsqd: tuple[str, ...]
    lookupd: tuple[str, ...]
    topic: str
    channel: str
    stage: str  # a directory that driver and executors share
    most_staged: int  # bytes not committed by Spark; when they are reached, nothing more is received
    max_in_flight: int
    max_records: int  # of a micro-batch, approximately; 0: no limit
    min_partitions: int
    poll: float  # s
    window: float  # s for which a redelivered message is recognized


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a sink, for batches and streams."""

    nsqd: tuple[str, ...]
    lookupd: tuple[str, ...]
    topic: str  # "": the column `topic` names it
    channel: str  # the only channel that gets the messages; "": all channels of the topic
    chunk_records: int
    chunk_bytes: int
    job: str  # name of a batch write: repeating it under the same name publishes nothing twice; "": none
    rate: int  # messages a second of each task; 0: no limit


def table_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of CREATE TABLE ... USING nsq, without the properties that Spark adds; {}: it is no such table."""
    given = {name.lower(): value for name, value in dict(options).items()}
    return {name.removeprefix(_TABLE): value for name, value in given.items() if name.startswith(_TABLE)}


def to_comment(options: Mapping[str, str]) -> str:
    """Return the comment of a column that keeps the options of a table, which Spark does not pass to readers."""
    return _COMMENT + json.dumps(options)


def from_comment(comment: str) -> dict[str, str]:
    """Return the options in the comment of a column; {}: there are none. Raises OptionError."""
    if not comment.startswith(_COMMENT):
        return {}
    try:
        return {str(name): str(value) for name, value in json.loads(comment.removeprefix(_COMMENT)).items()}
    except (ValueError, AttributeError):
        raise OptionError(
            f"the comment of the table's column topic was changed: {comment!r}: create it again"
        ) from None


class _Given:
    """The given options, looked up by name in any case."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in dict(options).items()}
        names = {name.lower(): name for name in known}
        strangers = sorted(self._values.keys() - names.keys() - _SPARK_NAMES)
        if strangers:
            like = get_close_matches(strangers[0], names, 1)
            hint = f"did you mean {names[like[0]]}?" if like else f"there are {', '.join(known)}"
            raise OptionError(f"option {strangers[0]!r} is not known; {hint}")

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default).strip()

    def parts(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def number(self, name: str, default: int, least: int, most: int = 1 << 62) -> int:
        text = self.text(name)
        if not text:
            return default
        if not (text.isascii() and text.isdigit()) or len(text) > 18 or not least <= int(text) <= most:
            raise OptionError(f"option {name}={text!r}: expected a whole number of at least {least}")
        return int(text)

    def truth(self, name: str, default: bool) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            raise OptionError(f"option {name}={text!r}: expected true or false")
        return text == "true" if text else default

    def name(self, option: str, kind: str) -> str:
        text = self.text(option)
        if text and _TOPIC.fullmatch(text) is None:
            raise OptionError(f"option {option}={text!r} is not a valid {kind} name")
        return text

    def only_one_of(self, *names: str) -> str:
        found = [name for name in names if name in self]
        if len(found) != 1:
            present = " and ".join(found) if found else "none"
            raise OptionError(f"expected exactly one of the options {', '.join(names)}; there is {present}")
        return found[0]


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a source in log mode. Raises OptionError."""
    given = _Given(options, _NAMES)
    mode = given.text("mode", "log")
    if mode not in ("log", "channel"):
        raise OptionError(f"option mode={mode!r}: expected log or channel")
    for name in _CHANNEL_NAMES:
        if name in given and name not in _LOG_NAMES:
            raise OptionError(f"option {name} is for mode=channel")
    topics, pattern = _topics(given)
    for first, second in (
        ("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp"),
        ("maxRecordsPerTrigger", "maxBytesPerTrigger"),
    ):  # fmt: skip
        if first in given and second in given:
            raise OptionError(f"options {first} and {second} exclude each other")
    return ReadOptions(
        *_servers(given),
        topics,
        pattern,
        _start(given, "starting", ""),
        _start(given, "ending", LATEST),
        "endingOffsets" in given or "endingTimestamp" in given,
        given.number("maxRecordsPerTrigger", 0, 1),
        given.number("maxBytesPerTrigger", 0, 1),
        given.number("minPartitions", 0, 1, 10_000),
        given.truth("failOnDataLoss", True),
        given.name("cursorName", "cursor"),
        _hold(given),
        given.truth("includeHeaders", False),
        given.number("nodeWaitMs", 60_000, 0) / 1000,
        given.number("pollMs", 5000, 0, 60_000) / 1000,
        given.number("maxFetchBytes", 4 << 20, 1, 8 << 20),
        given.text("offsetsLocation"),
    )


def _topics(given: _Given) -> tuple[tuple[str, ...], str]:
    """Return the names of topics, or no names and the pattern that they must match. Raises OptionError."""
    name = given.only_one_of("topic", "topics", "topicPattern")
    text = given.text(name)
    if name == "topicPattern" and text:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option topicPattern={text!r}: {error}") from None
        return (), text
    topics = given.parts(name) if name == "topics" else (text,)
    for topic in topics:
        if _TOPIC.fullmatch(topic) is None:
            raise OptionError(f"option {name}={text!r}: {topic!r} is not a valid topic name")
    if not topics:
        raise OptionError("option topics='': expected names with commas between them")
    return topics, ""


def channel_options(options: Mapping[str, str]) -> ChannelOptions | None:
    """Check the options of a source in channel mode; return None in another mode. Raises OptionError."""
    given = _Given(options, _NAMES)
    if given.text("mode", "log") != "channel":
        return None
    for name in ("topic", "channel", "stagingLocation"):
        if not given.text(name):
            raise OptionError(f"mode=channel wants option {name}")
    for name in _LOG_NAMES:
        if name in given and name not in _CHANNEL_NAMES:
            raise OptionError(f"option {name} has no meaning with mode=channel: a channel has no offsets")
    return ChannelOptions(
        *_servers(given),
        given.name("topic", "topic"),
        given.name("channel", "channel"),
        given.text("stagingLocation"),
        given.number("stagingMaxBytes", 1 << 30, 1),
        given.number("maxInFlight", 2500, 1, 100_000),
        given.number("maxRecordsPerTrigger", 0, 1),
        given.number("minPartitions", 0, 1, 10_000),
        given.number("pollMs", 5000, 0, 60_000) / 1000,
        given.number("dedupeWindowMs", 1_800_000, 0) / 1000,
    )


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a sink. Raises OptionError."""
    given = _Given(options, _SINK_NAMES)
    topic, channel = given.name("topic", "topic"), given.name("channel", "channel")
    if channel and not topic:
        raise OptionError(f"option channel={channel!r} needs the option topic")
    job = given.text("jobName")
    if job and _JOB.fullmatch(job) is None:
        raise OptionError(f"option jobName={job!r}: expected 1 to 64 printable characters without spaces")
    rate = given.number("recordsPerSecond", 0, 1)
    records = given.number("chunkRecords", min(5000, rate or 5000), 1, 100_000)
    size = given.number("chunkBytes", 1 << 20, 1, 4 << 20)
    return WriteOptions(*_servers(given), topic, channel, records, size, job, rate)


def _servers(given: _Given) -> tuple[tuple[str, ...], tuple[str, ...]]:
    name = given.only_one_of("nsqd", "lookupd")
    addresses = tuple(part.removeprefix("http://").rstrip("/") for part in given.parts(name))
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or "/" in address:
            raise OptionError(f"option {name}={given.text(name)!r}: {address!r} is not host:port of its HTTP")
    if not addresses:
        raise OptionError(f"option {name}='': expected host:port of its HTTP, several with commas between them")
    return (addresses, ()) if name == "nsqd" else ((), addresses)


def _start(given: _Given, which: str, default: str) -> Start:
    option, stamp = f"{which}Offsets", f"{which}Timestamp"
    if stamp in given:
        return Start(time=_time(stamp, given.text(stamp)))
    text = given.text(option, default)
    if text in ("", EARLIEST, LATEST):
        return Start(word=text)
    try:
        return Start(offsets={str(key): _offset(value) for key, value in json.loads(text).items()})
    except (ValueError, AttributeError):
        example = '{"orders/617": 42}'
        raise OptionError(f"option {option}={text!r}: expected earliest, latest or JSON such as {example}") from None


def _offset(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError
    return value


def _time(name: str, text: str) -> str:
    try:
        if text.isascii() and text.isdigit():
            moment = datetime.fromtimestamp(int(text) / 1000, UTC)
        else:
            moment = datetime.fromisoformat(text)
            if moment.tzinfo is None:
                raise ValueError("it has no time zone")
    except (ValueError, OverflowError, OSError) as error:
        wants = "ms since the epoch, or a time as 2026-11-21T10:00:00Z"
        raise OptionError(f"option {name}={text!r}: expected {wants}: {error}") from None
    return moment.isoformat()


def _hold(given: _Given) -> str:
    text = given.text("cursorHold")
    if text and _DURATION.fullmatch(text) is None:
        raise OptionError(f"option cursorHold={text!r}: expected a duration such as 48h or 90m")
    if text and not given.text("cursorName"):
        raise OptionError(f"option cursorHold={text!r} needs the option cursorName: it is the cursor that holds")
    return text
