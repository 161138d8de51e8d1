"""uvicorn's server without its command line, which imports click and multiprocessing.

The package `uvicorn` imports `uvicorn.main` for its own names alone.
"""

from shared.process.partial_import import Placeholder, without

with without("uvicorn.main", stand_in=Placeholder("uvicorn.main")):
    from uvicorn.config import Config
    from uvicorn.server import Server

__all__ = ["Config", "Server"]
