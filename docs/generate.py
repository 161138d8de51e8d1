"""Write docs/reference from the declarations in the code: `make reference`. A test holds that the pages are up to date.

* flags.md and http-routes.md: flags_page.py and routes_page.py.
* metrics.md: every metric, as an nsqd and an nsqlookupd answer /metrics.
* alarms.md: the alarm rules of nsqadmin.
* cli.md: the commands of penstock, with examples that are executed now (docs/cli_page.py), or were (docs/cli_session.py).
* deploy/nsqadmin-alerts.yaml: rules of Prometheus for the alarms of nsqadmin.
* deploy/config: an example of a configuration file for each daemon.
* deploy/grafana/dashboards, deploy/recording-rules.yaml: dashboards of Grafana and rules for them, from dashboards.py.

errors.md is written by hand; a test holds that it names every error in the code.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

import yaml

from admin.alarms.rules import RULES, Rule, Severity
from apps.passthrough import APPLIED
from docs.cli_page import cli
from docs.dashboards import DASHBOARDS, recording_rules
from docs.flags_page import DAEMONS, OPTIONS, TYPES, flags
from docs.markdown import page, table_row
from docs.routes_page import routes
from docs.scraped_metrics import metric_rows
from nsqd.protocols.nsq.identify import FIELDS, Field
from penstock.sansio.settings import Settings
from shared.print_config import example

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs/reference"
ALERTS = ROOT / "deploy/nsqadmin-alerts.yaml"
RECORDED = ROOT / "deploy/recording-rules.yaml"
EXAMPLES = ROOT / "deploy/config"
GRAFANA = ROOT / "deploy/grafana/dashboards"

# metrics.md


def metrics() -> str:
    """Return the page of all metrics, as the daemons answer them."""
    parts = [
        "# Metrics\n",
        "`GET /metrics` of nsqd and nsqlookupd answers these metrics in Prometheus's text format. A series by topic, channel,\n"
        "tube or cursor exists for the first 200 of each, by backlog; the others are summed up as `(other)`. Only a node of a\n"
        "cluster has `nsqd_cluster_*`, only one with an audit `nsqd_audit_*`, only one with `-otel-endpoint` `nsqd_spans_*`.\n"
        "Only a node with an auth file has `nsqd_identity_*`, for the 50 identities with the most messages; the others are\n"
        "summed up as `(other)`. Only a daemon with certificates has series of `*_certificate_expiry_seconds`; nsqadmin has\n"
        "that metric, too.\n",
    ]
    for program, rows in metric_rows().items():
        parts.append(f"## {program}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
        parts += [table_row(*row) for row in rows]
        parts.append("")
    return page(parts)


# client-settings.md


def client_settings() -> str:
    """Return the page of what a client may set: the fields of IDENTIFY, and the settings of the Python client."""
    types = TYPES | {bool: "boolean"}
    return page([
        "# Client settings\n",
        "The fields that any client of NSQ may send in IDENTIFY, and the settings of the Python client.\n",
        "## Fields of IDENTIFY\n",
        "A field that is missing, or 0, has its default. nsqd compares names without their case, ignores others, and answers\n"
        "`E_BAD_BODY` to a value of a wrong type or beyond a bound.\n"
        "[The protocol](../contributing/design/nsq-protocol.md#identify) has the rest.\n",
        "| field | type | default | bounds | effect |\n|---|---|---|---|---|",
        *(table_row(f"`{name}`", types[one.kind], one.default, _bounds(one), one.about) for name, one in FIELDS.items()),
        "\n## Settings of the Python client\n",
        "Fields of `Settings` in `penstock.client` and `penstock.aio`. The names are go-nsq's with the unit; `-consumer-opt`\n"
        "and `-producer-opt` of the [tools](tools.md#options-of-clients) take the names in the second column. A number that\n"
        "IDENTIFY carries has the bounds above; 0 leaves it to nsqd.\n",
        "| setting | `-consumer-opt` | type | default | effect |\n|---|---|---|---|---|",
        *(table_row(*_setting(one), types[one.type], *_effect(one)) for one in dataclasses.fields(Settings)),
        "",
    ])  # fmt: skip


def _setting(field: dataclasses.Field[Any]) -> tuple[str, str]:
    """Return the name of a setting of the Python client, and its names as an option of the tools."""
    return f"`{field.name}`", ", ".join(f"`{option}`" for option, (name, _) in APPLIED.items() if name == field.name)


def _effect(field: dataclasses.Field[Any]) -> tuple[str, str]:
    """Return the default of a setting, and its effect: the comment at its line."""
    comment = re.search(rf"^    {field.name}: .*?  # (.*)$", inspect.getsource(Settings), re.MULTILINE)
    if comment is None:
        raise SystemExit(f"penstock/sansio/settings.py: {field.name} needs a comment")
    if field.default is dataclasses.MISSING:
        return "of the machine", comment[1]
    return f"`{field.default}`" if field.default != "" else "", comment[1]


def _bounds(field: Field) -> str:
    """Return the bounds of a field of IDENTIFY in words: a setting has the name of its flag."""
    flags = {"most_copies": "the nodes of the cluster"}
    words = [
        f"{one:,}" if isinstance(one, int) else flags.get(one, f"`-{one.replace('_', '-')}`")
        for one in (field.least, field.most)
    ]
    return " to ".join(words) if field.most else ""


# deploy/nsqadmin-alerts.yaml


def nsqadmin_alerts() -> str:
    """Return Prometheus's rules for the alarms of nsqadmin."""
    words = "# `make reference` writes this file from the alarm rules of nsqadmin. Scrape its /metrics.\n"
    rules = [_prometheus_rule(rule) for rule in RULES if rule.severity is not Severity.INFO]
    return words + yaml.safe_dump({"groups": [{"name": "nsqadmin", "rules": rules}]}, sort_keys=False, width=120)


def _prometheus_rule(rule: Rule) -> dict[str, object]:
    return {
        "alert": "Nsqadmin" + "".join(map(str.capitalize, rule.name.split("-"))),
        "expr": f'max by (cluster) (nsqadmin_alarm_subjects{{rule="{rule.name}"}}) > 0',
        "labels": {"severity": "page" if rule.severity is Severity.CRITICAL else "ticket"},
        "annotations": {
            "summary": f"{rule.title}: {{{{ $value }}}} in {{{{ $labels.cluster }}}}",
            "description": f"{rule.meaning} {rule.action}",
            "runbook": f"docs/{rule.runbook}",
        },
    }


def alarms() -> str:
    """Return the page of nsqadmin's alarm rules and their thresholds."""
    lines = [
        "# Alarms of nsqadmin\n",
        "The rules that nsqadmin checks ([how to set thresholds, snooze and be notified](../how-to/use-nsqadmin.md#alarms)).\n",
        "| alarm | meaning | action | thresholds |\n|---|---|---|---|",
    ]
    for rule in RULES:
        thresholds = [
            f"`{rule.name}.{one.name}` ({one.default:g} {one.unit}): {one.meaning[:1].lower()}{one.meaning[1:]}"
            for one in rule.thresholds
        ]
        action = f"{rule.action} [{rule.runbook.partition('#')[0].rpartition('/')[2]}](../{rule.runbook})"
        lines.append(
            table_row(
                f"`{rule.name}`", f"{rule.title} ({rule.severity.word}). {rule.meaning}", action, "; ".join(thresholds)
            )
        )
    return page(lines)


PAGES = {
    "flags.md": flags,
    "http-routes.md": routes,
    "metrics.md": metrics,
    "alarms.md": alarms,
    "cli.md": cli,
    "client-settings.md": client_settings,
}


def main() -> None:
    REFERENCE.mkdir(exist_ok=True)
    for name, write in PAGES.items():
        (REFERENCE / name).write_text(write())
    ALERTS.write_text(nsqadmin_alerts())
    RECORDED.write_text(recording_rules())
    for daemon in DAEMONS:
        (EXAMPLES / f"{daemon}.toml").write_text(example(OPTIONS[daemon], daemon))
    for dashboard in DASHBOARDS:
        (GRAFANA / f"{dashboard.name}.json").write_text(dashboard.as_json())


if __name__ == "__main__":
    main()
