"""Configuration of real processes: files, --check-config, and reading again."""

import signal
import socket
from pathlib import Path

import httpx
import pytest

from nsqd.options import NsqdOptions
from shared.options import OptionError
from shared.startup import need_restart, reread
from tests.daemons import Daemon, nsqd, run
from tests.nsqd.http.test_config import NSQD_FILE

pytestmark = pytest.mark.process


def written(directory: Path, content: str) -> str:
    path = directory / "daemon.cfg"
    path.write_text(content)
    return str(path)


def config(node: Daemon, key: str) -> str:
    return httpx.get(f"http://{node.http}/config/{key}").text


def test_an_nsqd_with_a_file_of_nsq_starts_without_a_warning_and_shows_what_it_found_out(tmp_path: Path) -> None:
    with nsqd(tmp_path / "data", "-config", written(tmp_path, NSQD_FILE)) as node:
        assert not [line for line in node.lines if "WARNING" in line]
        assert any("INFO: ID: 77" in line for line in node.lines)
        tcp, http = (address.rpartition(":")[2] for address in (node.tcp, node.http))
        assert (config(node, "broadcast_tcp_port"), config(node, "broadcast_http_port")) == (tcp, http)
        assert config(node, "statsd_prefix") == f"nsq.node_example_{http}."
        assert config(node, "data_path").endswith("/data")
        info = httpx.get(f"http://{node.http}/info").json()
        found = [info[key] for key in ("hostname", "broadcast_address", "tcp_port", "http_port")]
        assert found == [socket.gethostname(), "node.example", int(tcp), int(http)]


# Wrong files: each reason is in tests/shared/test_config_file.py.


def test_a_file_without_end_is_not_read() -> None:
    ended = run("nsqd", "-config", "/dev/zero")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert "FATAL: failed to load config file /dev/zero - larger than" in ended.stderr


# --check-config


def test_checking_a_wrong_configuration_reports_all_of_it(tmp_path: Path) -> None:
    path = written(tmp_path, 'log_level = 5\nlog_format = "xml"\n')
    ended = run("nsqlookupd", "-config", path, "--check-config", "-tombstone-lifetime=x\ny")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        'nsqlookupd: invalid value "x\\ny" for flag -tombstone-lifetime: '
        'expected a duration such as "250ms", "1m30s" or "1h"\n'
        f"nsqlookupd: config file {path}: invalid value 5 for log_level: expected one of debug, info, warn, error, fatal\n"
        f"nsqlookupd: config file {path}: invalid value 'xml' for log_format: expected one of nsq, json\n"
    )


# Reading again


def test_reading_again_sees_the_file_as_it_is_now(tmp_path: Path) -> None:
    argv = ["-config", written(tmp_path, 'log_level = "info"'), "-snappy=false"]
    options = reread(NsqdOptions(config=argv[1]), "nsqd", argv, {"NSQD_DEFLATE": "false"})
    assert (options.log_level, options.snappy, options.deflate) == ("info", False, False)
    written(tmp_path, 'log_level = "debug"')
    assert reread(options, "nsqd", argv, {}).log_level == "debug"
    written(tmp_path, "log_level = 7")
    with pytest.raises(OptionError, match="invalid value 7 for log_level"):
        reread(options, "nsqd", argv, {})
    Path(argv[1]).unlink()
    with pytest.raises(OptionError, match="no such regular file"):
        reread(options, "nsqd", argv, {})


def test_what_needs_a_restart() -> None:
    before, same = NsqdOptions(), NsqdOptions(log_level="debug", warnings=("odd",))
    assert need_restart(before, same, "nsqd") == []
    after = NsqdOptions(log_level="debug", mem_queue_size=5, lookupd_tcp_address=("h:1",), node_id=7)
    assert need_restart(before, after, "nsqd") == ["id", "nsqlookupd_tcp_addresses", "mem_queue_size"]


def test_sighup_says_what_it_cannot_failover(tmp_path: Path) -> None:
    path = written(tmp_path, 'log_level = "info"\nsnapy = true\n')
    with Daemon("nsqlookupd", "-config", path) as daemon:
        written(tmp_path, 'log_levl = "debug"\nsnapy = true\ntombstone_lifetime = "1s"\nlog_prefix = "x"\n')
        daemon.process.send_signal(signal.SIGHUP)
        assert daemon.wait_for_line("restart to apply").endswith(
            "WARNING: SIGHUP: restart to apply the changes of: log_prefix, tombstone_lifetime\n"
        )
        said = [line.split("SIGHUP: ")[1] for line in daemon.lines if "SIGHUP: " in line]
        assert said[:2] == [
            f"config file {path}: unknown key 'log_levl': did you mean log_level?\n",
            "log level info\n",
        ]
