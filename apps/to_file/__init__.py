"""nsq_to_file: write topics to files, and finish a message when its line is on disk.

Read `topic_log` (what happens to a message), then `output` (the files of a topic) over `disk` (the system's calls). Pure are
`names` (file names), `rotation` (when a file ends) and `schedule` (when to sync, touch and try again).
`main` and `options` are the program; `feeds` connects consumers with topic logs, and `discovery` asks for topics.

Deliberate differences from the original:
* a failure to write, such as a full disk, is logged, and the program continues when it works again; the original exits
  with 1 and loses no message either, but has to be restarted;
* the file's name and its move are durable before a message is finished, not only the content;
* after a failed write no line is in a file in part; a line that a crash has cut is ended before the next is written;
* after SIGHUP the program continues with -work-dir, where the original writes to a closed file and exits;
* digits in -datetime-format stay as they are, where the original takes them for parts of a date;
* -topic-pattern asks for topics at the start, and uses the answers that it gets when one nsqlookupd is down; the original
  waits for -topic-refresh, and then needs all. A pattern that cannot be compiled is an error;
* a message that is delivered more than five times is still written: -consumer-opt=max_attempts has no meaning here;
* an unknown -consumer-opt is an error, and -work-dir must be on the file system of -output-dir.

See docs/reference/tools.md#nsq_to_file.
"""
