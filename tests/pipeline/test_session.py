"""The line that is printed for an error, out of the pages that Spark prints."""

from pipeline.session import cause
from tests.cases import each

OURS = """[STREAM_FAILED] Query terminated with exception: ...
	at org.apache.spark.sql.execution.streaming.StreamExecution.run(StreamExecution.scala:1)
Traceback (most recent call last):
  File "/x/penstock/spark/reading.py", line 1, in read
penstock.spark.reading.DataLoss: retention has passed offsets 3 to 9 of t/7: it is gone
Caused by: java.lang.RuntimeException: wrapped
"""
DISK = """Job aborted
	Caused by: java.io.UncheckedIOException: flush
		... 48 more
Caused by: java.io.IOException: No space left on device
	at java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""


@each("pages, line", [
    (OURS, "retention has passed offsets 3 to 9 of t/7: it is gone"),
    (DISK, "No space left on device (java.io.IOException)"),
    ("OSError: [Errno 28] no room", "[Errno 28] no room (OSError)"),
    ("\n[PARSE_SYNTAX_ERROR] at 'x' SQLSTATE: 42601\n== SQL ==\n", "[PARSE_SYNTAX_ERROR] at 'x' SQLSTATE: 42601"),
    ("an unknown text", ""), ("", ""),
])  # fmt: skip
def test_the_line_that_matters(pages: str, line: str) -> None:
    assert cause(pages) == line
