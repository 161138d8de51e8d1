"""A topic's sequence as the core sees it: what storage does for it, and how messages get into it.

Read `store` (the turn) and `journal` (what is recorded of a topic and of a reader), which storage implements; then `intake`
(published bodies become frames with ids) with `put_batch` (jobs) and `dedup` (what a publisher sends again).

* `offsets`: how far messages are distributed; `delay_queue`: messages that were published with a
  delay.
* `extent`: stretches of messages as readers get them; `spans` and `finished`: sets of ordinals;
  `ahead`: the messages that an emptied reader had not reached.
* `wrapper`: the base of stores and journals that see the calls of the core, for a trace or for spans.
* `mark`: how far the log has come, and the promises that replies wait for; `gate`: what holds messages back until they have
  copies.

Of the core, this package may import only `measurement`, `retention`, `message` and `timing`.
"""
