"""The message broker: topics, channels and time-outs, as pure and synchronous code.

* The core uses no socket, clock, file, log or random number generator. Callers pass in `now` (monotonic ns), `wall` (ns since
  the epoch), random numbers and the Store. One object graph serves the reactor, the tests and a simulator.
* A topic is a sequence of messages, counted by *ordinals* (dense, from 0). A channel is a position in that sequence plus
  the messages before that position that the channel has not finished. Fan-out copies nothing.
* The happy path moves runs of messages; the core handles a message alone only when something happens to it alone.
"""
