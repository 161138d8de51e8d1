"""Topics, channels and time-outs: pure and synchronous.

* No socket, clock, file, log or random here: `now` (monotonic ns) and `wall` (ns since the epoch) come in, so do the
  random numbers and the Store. One object graph serves the reactor, the tests and a simulator.
* A topic is a sequence of messages, counted by *ordinals* (dense, from 0). A channel is a position in that sequence plus
  the messages before it that are not finished. Fan-out copies nothing.
* The happy path moves runs of messages; a message is handled alone only when something happens to it alone.
"""
