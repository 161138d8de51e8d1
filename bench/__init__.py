"""The figures of the daemons: `python -m bench` (`make bench`) prints them; nothing is a test here, nothing asserts a speed.

How to read the table:

* One line is one row and one server: the median of --runs runs, each column by itself. Runs are interleaved: every row once,
  all servers in turn, then every row again, so that a machine that slows down slows all alike.
* Every run has a server process of its own and a topic of its own, so no row meets what another left behind. What was
  published in the measured time is in memory at the end: RSS says how much that is, B/msg what each message added to it.
* CPU ns/msg is utime + stime of the server's processes and threads over the measured time, for each message published (or
  delivered and finished). A busy machine moves it less than messages/s where the server is busy all the time; where it
  sleeps between two messages (pub-1) the waking is most of it: 27 to 77 us were seen for the same code.
* p50 and p99 are times from a request to its reply, for loads that wait for replies; an MPUB's is that of the whole batch.
* "server" and "load", on the right, are shares of one core. Where the load is the busier it is the
  load that was measured: no ratio of throughputs is printed then but "client-bound", and CPU ns/msg decides.
* "vs Go": messages/s as a multiple of the Go nsqd's, then CPU ns/msg as one (below 1: ours takes less).

The rows tls-, snappy- and deflate-writer and -reader are writer and reader through that upgrade. Every server is sent the same:

* The 200 bodies of an MPUB are all different; half of each is random bytes, the other half stands in all of them (names of
  fields). So they compress to about half, by snappy and by deflate. The plain rows' bodies are one byte, 200 times.
* Requests are compressed before the measured time, each complete in itself; TLS, and what consumers say and receive, is live.
* TLS is 1.3 with AES-128-GCM, whatever the server would choose; deflate's level is 6, the default of clients and servers.

With --nsqd PATH a Go nsqd takes turns with ours, with --mem-queue-size so large that it keeps everything in memory as ours
does. With --load DIRECTORY NSQ's own bench_writer and bench_reader are the load of the first two rows, and cload (if it is
there) that of single PUBs; they tell no latencies.

The sizes have a table of their own. Lateness there is from the moment a message was due to its arrival at a consumer, so
it includes the load's own delays; `due` counts what was due within the window, `missing` what of it had not come 2 s after the
window's end: where that is not 0, the times, which are of what came, say too little. The original needs minutes for each size
before the window begins (it writes its metadata anew for each topic).

The rows admin- are nsqadmin's (`--only admin`: some 10 minutes and 2.5 GB; admin-open wants Chromium). Their aims are for 10
nodes that have the same 10,000 topics; a node's figures are the mean of the ten. WRONG behind a page tells how often the answer
was an error, without topics or nodes, or in another order than was asked for; the figures are of the other times, if any.

* admin-listing: times are from the request (gzip, a connection of its own) to the first and the last byte of the answer; sizes
  are of the body, and of what was sent of it. The first line is the very first look at that nsqadmin.
* admin-watched: what one page held open takes, and what five take, beyond what is taken while nobody looks. A share of a core
  is small as well where updates come late: see how often they do, and what each takes.
* admin-open: DOM nodes and JavaScript's heap, after a collection, of a page that was updated 500 and 10,000 times.
"""
