"""The message daemon: a broker that clients of NSQ, of beanstalkd and of Disque use unchanged.

Read `main`, then `start/daemon.py`, which puts the parts of a node together; then the packages from `core` upward. Each
imports only those below it:

* `main` and `commands`: the programs. `start`: the steps of a start, and the tasks that it leaves running.
* `tasks`: work between turns. `discovery` (nsqlookupd) and `cluster`.
* `http`, `net` (the reactor), `storage`, `auth` and `statsd`.
* `protocols`, and below all `core`: both are pure.

`options` has every flag, and `option_values` reads what a flag may say.
"""
