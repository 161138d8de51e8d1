"""The token and the authority of Spark's tasks come from files that the environment names."""

from pathlib import Path

import pytest

from penstock.spark.access import CA_FILE, TOKEN_FILE, Access, access


def test_the_token_is_read_from_its_file_and_is_not_printed(tmp_path: Path) -> None:
    shown = access({})
    assert shown == Access()
    assert shown.headers() == {}
    assert shown.context() is None
    (tmp_path / "token").write_text("pst_secret\n")
    shown = access({TOKEN_FILE: str(tmp_path / "token"), CA_FILE: "ca.pem"})
    assert shown.headers() == {"Authorization": "Bearer pst_secret"}
    assert shown.authority == "ca.pem"
    assert "pst_secret" not in repr(shown)
    with pytest.raises(OSError, match="token"):
        access({TOKEN_FILE: str(tmp_path / "no-token")})
