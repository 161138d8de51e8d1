"""Crash tests: `python -m bench.crash` (`make crash`) shows which messages survive, with a checker that trusts no server.

A server is loaded, killed by SIGKILL 0 to 400 ms later, and started again on the same directory. The load is PUB, MPUB and
DPUB over TCP, /pub over HTTP, consumers that FIN, TOUCH, REQ with and without a delay, and leave some messages in flight, and
clients of beanstalkd that put, delete, release, bury and kick, with three priorities. One start of eight is itself cut short.
After --round crashes everything is drained, and the checker reports lost messages. Then the next round begins in an empty
directory. As root, the same is done with power cuts, on ext4 and xfs. Penstock's nsqd has a harder test there: some of the
crashes are kills between two power cuts, and at some it runs on for a moment on a disk that fails every call, where it must
acknowledge nothing.

How to read the table, one line for each server and kind of crash:

* outstanding: the number of crashes at which publishes were in flight, sent and not answered.
* acked: messages whose publish was answered OK. Each one was survived, lost or excused: a message is lost if one of
  its channels never delivered it, or delivered it, got no FIN, and never delivered it again. Messages in flight,
  deferred and requeued count like all others. Excused: acked so shortly before a power cut that the mode promises nothing (in
  the mode interval its 200 ms and a second for the sync; in the mode os any time), or while the disk failed (`volume.py` says
  why).
* early: delivered more than 1 ms before a delay of DPUB or REQ was over. A REQ has no reply: it counts if it was certainly
  handled, because a later publish on the same connection was answered, or if the server did not crash in between. A job that
  is buried and was not kicked is early whenever it comes.
* inverted: jobs that came to the last client, which is alone and finds all of them ready, after a less urgent one.
* dup: the share of deliveries that repeat a message which was not requeued; every crash causes some, since messages in flight
  are redelivered.
* resurrected: deliveries of a message whose FIN had certainly been handled.
* unexpected: deliveries of content that was never published, or that changed. ids: two messages of a topic with one id.

The exit code is 1 if Penstock's nsqd or beanstalkd lost anything, delivered early or out of order, delivered the
unexpected, gave an id twice, did not start again, or reported corruption. Then the history (`history.py` says how to read
it) and the data directories are kept.

With --nsqd PATH and --beanstalkd PATH a Go nsqd and a beanstalkd are tested as well: they show that the checker catches
losses.

`python -m bench.crash.lake` does the same for archives: see `lake`, and `dying`, by which an archive ends at a chosen point.

The files: `campaign` (a line of the table) over `trial` (one data directory), `process` (one life of a server), `volume`
(where the data is, and how the power goes) and `subjects` (the servers); `mix` (the load) over `link`, `nsq_links` and
`beanstalk_links`; `ledger` (what was promised, what came, and the findings) over `messages` and `history`.

See docs/contributing/testing.md#the-crash-checker.
"""
