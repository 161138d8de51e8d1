"""What survives a crash: `python -m bench.crash` (`make crash`) finds out, with a checker that believes nobody.

A server is loaded (PUB, MPUB and DPUB over TCP, /pub over HTTP; consumers that FIN, TOUCH, REQ with and without a delay, and
leave some in flight; clients of beanstalkd that put, delete, release, bury and kick, with three priorities), killed by
SIGKILL 0 to 400 ms later, and started again on the same directory; one start of eight is
itself cut short. After --round crashes everything is taken out, and the checker says of each message what became of it. Then
the next round begins in an empty directory. As root the same is done with power cuts, on ext4 and xfs; our own
nsqd has it harder there: some of the crashes are kills between two power cuts, and at some it goes on for a moment on a disk
that fails every call, where it must acknowledge nothing.

How to read the table, one line for each server and kind of crash:

* outstanding: at so many of the crashes there were publishes on the way, sent and not answered.
* acked: messages whose publish was answered OK. Each was survived, lost or excused: a message is lost if one of the channels
  that are owed it never gave it, or gave it, was not told FIN, and never gave it again. Messages in flight, deferred and
  handed back count like all others. Excused: acked so short before a power cut that the mode promises nothing (in the mode
  interval its 200 ms and a second for the sync; in the mode os any time), or while the disk failed (`volume.py` says why).
* early: delivered more than 1 ms before a delay of DPUB or REQ was over. A REQ has no reply: it counts if it was handled for
  certain, because a publish behind it on the same connection was answered, or if the server did not crash in between.
  A job that is buried, and was not kicked, is early whenever it comes.
* inverted: jobs that came to the last client, which is alone and finds all of them ready, behind a less urgent one.
* dup: deliveries that nobody had asked for again, of all; every crash causes some: what was in flight comes again.
* resurrected: delivered again though its FIN was handled for certain.
* unexpected: nothing that was ever published, or changed. ids: two messages of a topic under one id.

The exit code is 1 if this project's nsqd or beanstalkd lost anything, was early or out of order, delivered the unexpected, gave
an id twice, did not start again, or spoke of damage. Then the history (`history.py` says how to read it) and the data
directories are kept.

With --nsqd PATH and --beanstalkd PATH a Go nsqd and a beanstalkd are tried as well: they show that the checker catches losses.
"""
