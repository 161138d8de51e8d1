"""The HTTP side that all daemons share.

* `api`: NSQ's conventions on Starlette's requests and responses: routes, errors, JSON, foreign Host and Origin.
* `bridge`: how a handler, in the HTTP thread, runs a function in the trio thread and waits for it.
* `server`: uvicorn in a thread of its own (it cannot run on trio), with limits on slow and oversized requests.
"""
