"""The HTTP side that every daemon shares.

* `api`: NSQ's conventions on Starlette's requests and responses: routes, errors, JSON, foreign Host and Origin.
* `bridge`: how a handler, in the HTTP thread, has something done in the trio thread and waits for it.
* `server`: uvicorn in a thread of its own (it cannot run on trio), with limits on slow and oversized requests.
"""
