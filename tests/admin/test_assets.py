"""The static files of the pages: what they weigh, and that all of them are served."""

import gzip

from admin.output.layout import HERE

MOST = 60_000  # bytes, compressed


def test_the_pages_need_no_more_than_they_may() -> None:
    files = [path for path in (HERE / "static").iterdir() if path.suffix in (".js", ".css")]
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) < MOST


def test_pages_name_all_scripts_and_styles_and_no_others() -> None:
    files = {path.name for path in (HERE / "static").iterdir() if path.suffix in (".js", ".css")}
    layout = (HERE / "templates" / "layout.html").read_text()
    named = {name for name in files if f"/static/{name}" in layout}
    assert files - named == {"times.js"}  # others import it
