"""One task of an archive: read spans of topics from their nodes, and write them below the table. Runs on executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.lake.files import DataFile, Files
from penstock.lake.location import MESSAGES, Lake
from penstock.lake.schema import NODE
from penstock.spark.ask import Asker
from penstock.spark.offsets import NodeTopic, Span
from penstock.spark.options import ReadOptions
from penstock.spark.reading import DataLoss, read

Log = tuple[NodeTopic, str]  # a topic on a node, and the log's id


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a task: its files, or the topic that has lost messages, and which."""

    files: Sequence[DataFile] = ()
    rows: Counter[Log] = field(default_factory=Counter)  # messages in the files, by log
    lost: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """The common part of the tasks of an archive."""

    options: ReadOptions
    lake: Lake
    partition_by: tuple[str, ...]

    def __call__(self, spans: Iterable[Span]) -> Outcome:
        """Write the messages of the spans, ordered by topic. Raises Unreachable, NoAnswer, Refused, OSError."""
        files = Files(self.lake, MESSAGES, self.partition_by)
        rows: Counter[Log] = Counter()
        try:
            with Asker() as asker:
                for span in spans:
                    for batch in read(asker, span, self.options, NODE):
                        files.add(batch, span.place.topic)
                        rows[span.place, span.log] += len(batch)
            return Outcome(files.close(), rows)
        except DataLoss as loss:
            files.abandon()
            return Outcome(lost=(loss.topic, loss.what))
        except BaseException:
            files.abandon()
            raise
