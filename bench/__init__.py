"""Benchmarks of the daemons: `python -m bench` (`make bench`) prints a table. Nothing here is a test or asserts a speed.

How to read the table:

* One line is one row and one server: the median of --runs runs, each column by itself. Runs are interleaved: every row
  once, all servers in turn, then every row again, so that a machine that slows down slows all alike.
* Every run has a server process and a topic of its own, so no row is affected by another one's messages. All messages
  published in the measured time are in memory at the end: RSS says how much that is, B/msg what each message added to
  it.
* CPU ns/msg is utime + stime of the server's processes and threads over the measured time, for each message published
  (or delivered and finished). A busy machine changes it less than messages/s if the server is busy all the time. If the
  server sleeps between two messages (pub-1), waking up is most of it: 27 to 77 us were seen for the same code.
* p50 and p99 are times from a request to its reply, for loads that wait for replies; an MPUB's is that of the whole
  batch.
* "server" and "load", on the right, are shares of one core. If the load was the busier one, the load was measured and
  not the server: the table then says "client-bound" instead of a ratio of throughputs, and CPU ns/msg decides.
* "vs Go": messages/s as a multiple of the Go nsqd's, then CPU ns/msg as a multiple (below 1: ours takes less).

The rows tls-, snappy- and deflate-writer and -reader are writer and reader through that upgrade. Every server gets the
same bytes:

* The 200 bodies of an MPUB are all different: half of each is random bytes, and the other half is the same in all of
  them (names of fields). So they compress to about half, by snappy and by deflate. The plain rows' bodies are one byte,
  200 times.
* Requests are compressed before the measured time, each complete in itself. TLS, and everything that consumers send and
  receive, is processed live.
* TLS is 1.3 with AES-128-GCM, whatever the server would choose; deflate's level is 6, the default of clients and
  servers.

With --nsqd PATH a Go nsqd takes turns with ours, with --mem-queue-size so large that it keeps everything in memory as
ours does.

The rows sizes- have lines of text, as all rows below. Their lateness is the time from the moment a message was due to its
arrival at a consumer, so it includes the load's own delays. `due` counts the messages due within the window, `missing`
those that had not come 2 s after its end: if there are any, the times are too low. The original needs minutes for each size
before the window begins (it rewrites its metadata for each topic).

The rows log-writer and log-pub- compare the durability modes, and the floor: one thread that writes and syncs as many
bytes as the log gets for one request, in a file whose blocks were written before, in the same slices of time.

The rows clients- compare programs in Python: CPU is the client's, with 50 tasks that publish, or 500 messages in flight.

The rows nodes- publish over 50 or 500 connections to 1, 2 and 4 nodes that share a port. CPU is of all nodes together. The
kernel spreads the connections by chance, so the nodes are not equally busy.

The rows copies- publish to one of three nodes that are a cluster: without followers, with two, and with replies that wait for
both. See `copies`. The row failover kills such a node, and shards consumes from logs that were promoted. See `failover`.

The rows jobs- and queues- compare job servers: with `--beanstalkd PATH` and `--disque PATH` the originals take turns with
ours. "put" and ADDJOB are one job each; "reserve + delete" and "GETJOB + ACKJOB" are two commands for one job, and each row
begins with all three commands, of clients that put, fetch and finish a job by turns.

* rate is jobs/s as a multiple of the original's. It says little if the server's share of a core, in parentheses, is small
  in both: then the load was measured.
* "jobs per CPU" is the original's CPU time for a job, divided by ours: above 1, ours does more in the same CPU time.
* queues-copies: the load's connections are all to one of three nodes; CPU is that of the three together. Ours writes to the
  page cache (os); the original without its file, and with it.
* queues-memory: resident memory of the whole process, and its growth for each job.
* queues-remote: from the sending of ADDJOB on one node to the reply of a client that waits on another; each job has a copy
  on all three. Of the original three jobs only, since it asks other nodes every few seconds.

The rows job-turns- have the CPU time of a job in the reactor's turns, without sockets and processes: see `job_turns`. A change
of a tenth shows there on a busy machine, too.

The rows admin- are nsqadmin's (`--only admin`: some 10 minutes and 2.5 GB; admin-open needs Chromium). Their aims are
for 10 nodes that have the same 10,000 topics; the values of a node are the mean of the ten. WRONG after a page counts the
answers that were an error, had no topics or nodes, or were in another order than requested; the values are of the others, if
any.

* admin-listing: times are from the request (gzip, a connection of its own) to the first and the last byte of the answer;
  sizes are of the body, and of the bytes sent for it. The first line is the very first request to that nsqadmin.
* admin-watched: the cost of one open page, and of five, beyond the cost without any page. A share of a core is also
  small if updates come late: see how often they come, and what each costs.
* admin-open: DOM nodes and JavaScript's heap, after a collection, of a page that was updated 500 and 10,000 times.

The rows turns- (`--only turns`) provoke long turns of the reactor, each on a node of its own: see `turns`. A turn is measured
by the clock on the wall, so on a busy machine it includes the time of other processes meanwhile.

The rows lake- are those of the archive: see `lake`. Jobs run as processes, whose CPU includes their start.

The files:

* The table: `rows`, `stats` and `table`, over `server` (a process under measurement), `ports` and `outcome`; `gonsq` is Go's.
* The load, in processes of their own: `load`, `publish`, `consume`, `job_load`, `spark_load`, over `wire` and `upgrade`.
* Other rows: `sizes` over `crowd` and `firing`; `log_sizes`; `durable`; `read_back`; `jobs` and `queues` over `job_server`;
  `job_turns`; `clients` over `client_load`; `nodes`; `copies`; `failover`; `turns`; `pipeline`; `lake`.
* nsqadmin's: `admin_pages` and `admin_open` over `admin_cluster`.
* Work in a thread during a measured block: `background`.
* Crash tests: the package `crash`.
"""
