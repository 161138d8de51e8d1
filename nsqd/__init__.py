"""The message daemon: a broker that clients of NSQ, of beanstalkd and of Disque use unchanged.

Read `main`, then `daemon`, which puts the parts of a node together; then the packages from `core` upward.

* Start: `options` and `option_values` (every flag), `listeners` (sockets before imports), `opening` (a data directory becomes
  a broker), `front_ends`, `shared_port`, `beanstalk`, `disque`, `http_server` and `clustering` (what listens), `client_ports`
  (when it does), `lent_jobs` (jobs for clients of other nodes), `identity` (how the node describes itself), `fence` (the start
  that follows while the process runs, because another node has promoted the log).
* Tasks between turns: `pause_expiry`, `queue_expiry` (idle queues of Disque), `rights_task` (the auth file), `series_task`,
  `signals` (the end, and SIGHUP), `deliveries` (the statistics topic), `time_slices` (long looks in portions), `topology_log`
  (lines about topics and channels), `audit` (what it records by itself).
* Programs: `beanstalkd`, `disque_server` (whose configuration `disque_config` reads), `import_command` (penstock import),
  `restore_command` (penstock restore), `verify` (penstock verify).
* Packages: `core`, `protocols`, `storage`, `net`, `http`, `discovery`, `auth`, `statsd`, `cluster`,
  `replication`.

Imports go down: main, daemon, front ends, opening, the packages around the core (which do not import each other), `protocols`,
`core`. nsqd imports no other room, and neither penstock.client nor penstock.launch.
"""
