"""deploy/alerts.yaml, evaluated by promtool over series that raise each alert, and over those of healthy daemons."""

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.daemons import ROOT
from tests.requirements import promtool, require

RULES, RECORDED = ROOT / "deploy/alerts.yaml", ROOT / "deploy/recording-rules.yaml"
CHANNEL = '{instance="n",topic="t",channel="c"}'
UP = {'up{job="nsqd",instance="n"}': "1x90", 'up{job="nsqlookupd",instance="l"}': "1x90"}
# series in promtool's notation, one value per minute, and the alerts that they raise within 90 minutes
RAISED: dict[str, tuple[dict[str, str], set[str]]] = {
    "a node is down": ({'up{job="nsqd",instance="n"}': "0x90"}, {"NsqdDown"}),
    "the one nsqlookupd is down": (
        {'up{job="nsqlookupd",instance="l"}': "0x90"}, {"NsqlookupdDown", "NsqlookupdAllDown"},
    ),
    "one of two nsqlookupds is down": (
        {'up{job="nsqlookupd",instance="l"}': "0x90", 'up{job="nsqlookupd",instance="m"}': "1x90"}, {"NsqlookupdDown"},
    ),
    "an nsqlookupd knows too few": (UP | {'nsqlookupd_producers{instance="l"}': "0x90"}, {"NsqlookupdProducersMissing"}),
    "not ready": ({'probe_success{job="nsqd-readyz",instance="n"}': "0x90"}, {"NsqdNotReady"}),
    "no sync ends": (
        {'nsqd_log_sync_seconds_count{instance="n"}': "5x90", 'nsqd_log_unsynced_bytes{instance="n"}': "9x90"},
        {"NsqdNotDurable"},
    ),
    "syncs are slow": (
        {'nsqd_log_sync_seconds_bucket{instance="n",le="0.5"}': "0+90x90",
         'nsqd_log_sync_seconds_bucket{instance="n",le="1"}': "0+100x90",
         'nsqd_log_sync_seconds_bucket{instance="n",le="+Inf"}': "0+100x90"},
        {"NsqdSyncSlow"},
    ),
    "the disk fills": (
        {'node_filesystem_avail_bytes{instance="n",mountpoint="/var/lib/nsqd"}': "1000000x90"}, {"NsqdDiskFills"},
    ),
    "damage": ({'nsqd_log_damage_total{instance="n"}': "7x90"}, {"NsqdDamage"}),
    "a torn end": ({'nsqd_log_torn_total{instance="n"}': "7x90"}, {"NsqdTorn"}),
    "reads fail": ({'nsqd_log_read_retries_total{instance="n"}': "0+1x90"}, {"NsqdReadsFail"}),
    "a backlog grows": ({f"nsqd_channel_depth{CHANNEL}": "10000+1x90"}, {"NsqdBacklogGrows"}),
    "no consumer": (
        {f"nsqd_channel_depth{CHANNEL}": "1x90", f"nsqd_channel_clients{CHANNEL}": "0x90"}, {"NsqdNoConsumer"},
    ),
    "messages time out": (
        {f"nsqd_channel_timed_out_total{CHANNEL}": "0+2x90", f"nsqd_channel_messages_total{CHANNEL}": "0+10x90"},
        {"NsqdMessagesTimeOut"},
    ),
    "dead letters": ({f"nsqd_channel_buried{CHANNEL}": "0x80 1x10"}, {"NsqdDeadLetters"}),
    "clients are refused": ({'nsqd_refused_total{instance="n",reason="r"}': "0+1x90"}, {"NsqdRefuses"}),
    "no memory for requests": ({'nsqd_buffer_refused_total{instance="n"}': "0+1x90"}, {"NsqdBufferBudget"}),
    "a node is suspected": ({'nsqd_cluster_nodes{instance="n",state="suspected"}': "1x90"}, {"NsqdNodeSuspected"}),
    "a log is lost": ({'nsqd_cluster_lost_logs{instance="n"}': "1x90"}, {"NsqdLogNotServed"}),
    "a follower lags": ({'nsqd_cluster_follower_in_sync{instance="n",node="1"}': "0x90"}, {"NsqdFollowerNotInSync"}),
    "copies come too late": ({'nsqd_cluster_replies_given_up_total{instance="n"}': "0+1x90"}, {"NsqdRepliesGivenUp"}),
    "messages are dropped": ({'nsqd_dropped_total{instance="n"}': "0+1x90"}, {"NsqdDrops"}),
    "a certificate expires in 10 days": (
        {'nsqlookupd_certificate_expiry_seconds{instance="l"}': "864000x90"}, {"CertificateExpires"},
    ),
    "a certificate has expired": (
        {'nsqd_certificate_expiry_seconds{instance="n"}': "-1x90"}, {"CertificateExpires", "CertificateExpiresVerySoon"},
    ),
    "healthy": (
        UP | {
            'nsqlookupd_producers{instance="l"}': "1x90",
            'nsqd_log_sync_seconds_count{instance="n"}': "0+9x90", 'nsqd_log_unsynced_bytes{instance="n"}': "9x90",
            'nsqd_log_sync_seconds_bucket{instance="n",le="0.5"}': "0+100x90",
            'nsqd_log_sync_seconds_bucket{instance="n",le="+Inf"}': "0+100x90",
            'nsqd_log_damage_total{instance="n"}': "0x90", 'nsqd_log_torn_total{instance="n"}': "0x90",
            'nsqd_log_read_retries_total{instance="n"}': "9x90",
            f"nsqd_channel_depth{CHANNEL}": "20000-1x90", f"nsqd_channel_clients{CHANNEL}": "1x90",
            f"nsqd_channel_timed_out_total{CHANNEL}": "0+1x90", f"nsqd_channel_messages_total{CHANNEL}": "0+10x90",
            f"nsqd_channel_buried{CHANNEL}": "9-0.01x90", 'nsqd_refused_total{instance="n",reason="r"}': "9x90",
            'nsqd_buffer_refused_total{instance="n"}': "9x90", 'nsqd_cluster_lost_logs{instance="n"}': "0x90",
            'nsqd_cluster_nodes{instance="n",state="suspected"}': "0x90",
            'nsqd_cluster_follower_in_sync{instance="n",node="1"}': "1x90",
            'nsqd_cluster_replies_given_up_total{instance="n"}': "9x90", 'nsqd_dropped_total{instance="n"}': "9x90",
            'nsqd_certificate_expiry_seconds{instance="n"}': "1300000x90",
        },
        set(),
    ),
}  # fmt: skip


def test_every_alert_has_a_case() -> None:
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert set().union(*(names for _, names in RAISED.values())) == {rule["alert"] for rule in rules}


@pytest.mark.process
def test_the_series_of_each_case_raise_its_alerts(tmp_path: Path) -> None:
    require("promtool")
    tests = [
        {
            "name": case,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": "90m",
                    "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
                }
            ],
        }
        for case, (series, names) in RAISED.items()
    ]
    path = tmp_path / "tests.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES), str(RECORDED)], "evaluation_interval": "1m", "tests": tests})
    )
    ran = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
