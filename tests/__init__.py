"""The tests of all packages. No command that they run finds a context of their user, or notes one there."""

import os
import tempfile

_home = tempfile.TemporaryDirectory()
os.environ |= {"XDG_CONFIG_HOME": f"{_home.name}/config", "XDG_STATE_HOME": f"{_home.name}/state"}
os.environ.pop("PENSTOCK_CONTEXT", None)
