"""Schedules: messages that a node publishes again and again, or once at a time.

* `recurrence` computes when a schedule is due: by a cron expression in a time zone, every so often, or at one time.
* `table` has the schedules of a log, as its records state them.
* `schedules` has those that a node publishes by, and decides about ticks that are due or were missed.

Times are whole seconds since the epoch. Nothing here reads a clock.
"""
