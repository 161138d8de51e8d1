"""The pages of alarms and their thresholds, /api/alarms, and nsqadmin's own /metrics.

A user sees the alarms of the topics that the user may see; those of nodes only if that is all topics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from admin.alarms.book import LONGEST_REASON, Alarm, Group, Id, Snooze, grouped
from admin.alarms.monitor import Monitor
from admin.alarms.rules import BY_NAME, OFF, RULES, Rule, Severity
from admin.alarms.runbooks import NAMES, runbook
from admin.alarms.subject import Place
from admin.alarms.webhook import Webhooks
from admin.nodes.inventory import NodeState
from admin.nodes.views import count, page_of, whole
from admin.output.form_state import FieldError, number_of
from admin.output.layout import Fields, Form, View
from admin.output.site import Site
from admin.times import is_old
from admin.users.access import check_action, who_asks
from admin.users.roles import Who
from shared.http.api import Handler, Routes, json_response, query
from shared.http.errors import HttpError
from shared.http.process_metrics import process_families
from shared.values import SECOND

if TYPE_CHECKING:
    from prometheus_client import Metric

SHOWN = 20  # alarms of each rule on the page of all rules
MOST_MINUTES = 60 * 24 * 30  # of a snooze
MOST_HERE = 5  # alarms with a banner of their own on the page of what they are about


@dataclass(slots=True)
class AlarmPages:
    """The request handlers about the alarms of one cluster."""

    site: Site
    monitor: Monitor
    webhooks: Webhooks
    cluster: str  # its name, a label of the metrics

    def views(self) -> Mapping[str, View]:
        """Return the view function of each path."""
        return {"/alarms": self.alarms, "/alarms/rules": self.rules, "/runbooks/{folder}/{page}": self.show_runbook}

    def routes(self, shown: Mapping[str, Mapping[str, Handler]]) -> Routes:
        """Return the handlers of every path, by method, without those of views, which are `shown`."""
        posted = {"/alarms": self.snooze, "/alarms/rules": self.set_thresholds}
        post = self.site.renderer.form_handler
        return {
            **{path: {"POST": post(do, path, shown[path]["GET"])} for path, do in posted.items()},
            "/api/alarms": {"GET": self.json},
            "/metrics": {"GET": self.metrics},
        }

    # Queries

    def visible(self, who: Who) -> list[Alarm]:
        """Return the alarms that the user may see, the worst first."""
        alarms = self.monitor.book.all()
        return alarms if who.sees_all else [one for one in alarms if one.subject.topic and who.sees(one.subject.topic)]

    def banners(self, who: Who, place: Place) -> Fields:
        """Return the alarms about the subject of a page, and counts of the others: without nodes that are down, and of all."""
        urgent = self.urgent(who)
        alarms = [one for one in urgent if one.rule.name != "node-down"]
        here = [one for one in alarms if one.subject.is_about(place)][:MOST_HERE]
        found = Counter(one.subject.severity for one in alarms)
        found.subtract(one.subject.severity for one in here)
        counts = {one.word: found[one] for one in (Severity.CRITICAL, Severity.WARNING) if found[one]}
        return {"alarms_here": here, "alarm_counts": counts, "alarm_count": len(urgent)}

    def urgent(self, who: Who) -> list[Alarm]:
        """Return the alarms that are neither snoozed nor only good to know."""
        return [one for one in self.visible(who) if one.snooze is None and one.subject.severity is not Severity.INFO]

    def groups(self, who: Who) -> list[Group]:
        """Return the urgent alarms, by rule."""
        return grouped(self.urgent(who))

    def totals(self) -> list[tuple[str, str]]:
        """Return the totals of the overview that are not of topics: its coverage, and the work left for operators."""
        look, coverage = self.monitor.last, self.monitor.queries.coverage()
        draining = sum(one.record.is_draining for one in look.nodes.values())
        paused, buried = len(look.paused_tubes), sum(look.tubes.values())
        counts = {"Draining nodes": draining, "Paused tubes": paused, "Buried jobs": buried}
        found = [(name, count(value)) for name, value in counts.items() if value]
        return [("Totals from", coverage), *found] if coverage else found

    async def alarms(self, request: Request) -> Fields:
        asked, look = query(request), self.monitor.last
        rule, filter_text = BY_NAME.get(asked.get("rule", "")), asked.get("q", "")[:100]
        alarms = [
            one
            for one in self.visible(who_asks(request))
            if rule in (None, one.rule) and filter_text.lower() in one.subject.name.lower()
        ]
        found = grouped(alarms)
        shown, page, pages = page_of(found[0].alarms if rule and found else [], whole(asked.get("page", "1")))
        asked_at = {name: one.channels_at for name, one in look.nodes.items() if name in look.answered}
        return {
            "page_of": "alarms", "title": rule.title if rule is not None else "Alarms",
            "groups": found, "rule": rule, "shown": shown, "most_shown": SHOWN, "page": page, "pages": pages, "q": filter_text,
            "looked_at": self.monitor.checked_at, "left_out": self.monitor.book.left_out, "runbook_of": self.runbook,
            "older": [(name, at) for name, at in asked_at.items() if is_old(at, look.at)],  # channels of an earlier check
            "table": [one.json() for one in alarms],
        }  # fmt: skip

    def runbook(self, rule: Rule) -> str:
        """Return the URL of a rule's runbook: on the site of -docs-url, or without one, of nsqadmin's own page."""
        base = self.site.renderer.options.docs_url.rstrip("/")
        page, hash_mark, anchor = rule.runbook.partition("#")
        name = page.removesuffix(".md")
        return (f"{base}/{name}.html" if base else f"{self.site.renderer.base}/runbooks/{name}") + hash_mark + anchor

    async def show_runbook(self, request: Request) -> Fields:
        name = "/".join(request.scope["path"].rsplit("/", 2)[1:])
        if name not in NAMES:
            raise HttpError(404, "No alarm has such a runbook.")
        title, sections = runbook(name)
        return {"page_of": "runbook", "title": title, "still": True, "sections": sections}

    async def rules(self, request: Request) -> Fields:
        return {
            "page_of": "alarm_rules", "title": "Alarm rules", "still": True,
            "rules": [self._rule(rule) for rule in RULES],
            "is_kept": self.monitor.store.path is not None,
            "webhooks": len(self.site.renderer.options.alarm_webhook),
            "interval": int(self.site.renderer.options.alarm_interval),
        }  # fmt: skip

    def _rule(self, rule: Rule) -> Fields:
        thresholds = self.monitor.checks.thresholds
        names = [(one, f"{rule.name}.{one.name}") for one in rule.thresholds]
        values = [(one, f"{thresholds.value(rule.name, one.name):g}", thresholds.source(name)) for one, name in names]
        is_on, source = thresholds.is_on(rule), thresholds.source(rule.name)
        return {"rule": rule, "is_on": is_on, "source": source, "values": values}

    async def json(self, request: Request) -> Response:
        """Answer all alarms that the user may see, and the time of the last check."""
        alarms = self.visible(who_asks(request))
        checked = self.monitor.checked_at // SECOND
        return json_response({"checked": checked, "alarms": [one.json() for one in alarms]})

    async def metrics(self, request: Request) -> Response:
        """Answer nsqadmin's own metrics for Prometheus."""
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest  # here, because a start does without

        registry: Any = SimpleNamespace(collect=self._families)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def _families(self) -> Iterator[Metric]:
        """Yield the metrics of this cluster's alarms and nodes, and of the process."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        monitor, cluster = self.monitor, self.cluster
        found = Counter(one.subject.rule for one in monitor.book.all() if one.snooze is None)
        by_rule, text = ("cluster", "rule", "severity"), "Subjects of alarms, without snoozed ones"
        subjects = GaugeMetricFamily("nsqadmin_alarm_subjects", text, labels=by_rule)
        for rule in RULES:
            subjects.add_metric((cluster, rule.name, rule.severity.word), found[rule.name])
        nodes = GaugeMetricFamily("nsqadmin_nodes", "Known nodes by state", labels=("cluster", "state"))
        states = Counter(one.state(monitor.queries.clock()) for one in monitor.inventory.all())
        for state in NodeState:
            nodes.add_metric((cluster, state.value), states[state])
        yield from (subjects, nodes)
        for kind, name, text, value in (
            (CounterMetricFamily, "nsqadmin_checks", "Checks of all alarms", monitor.completed),
            (GaugeMetricFamily, "nsqadmin_check_seconds", "Duration of the last check of all alarms", monitor.took),
            (CounterMetricFamily, "nsqadmin_webhook_failures", "Notifications that were dropped", self.webhooks.failed),
        ):
            family = kind(name, text, labels=("cluster",))
            family.add_metric((cluster,), value)
            yield family
        yield from process_families("nsqadmin", monitor.own_dates)

    # Actions

    async def snooze(self, request: Request, form: Form) -> str:
        """Silence an alarm, or all of a rule, for some minutes; or end that."""
        rule, key, action = form.get("rule", ""), form.get("subject", ""), form.get("action", "")
        if rule not in BY_NAME or action not in ("snooze", "wake") or len(key) > 1000:
            raise HttpError(400, "Unknown alarm.")
        check_action(who_asks(request), "snooze", self._topic_of((rule, key)))
        actor, target = self.site.access.actor(request), f"{rule} {key}".strip()
        if action == "wake":
            self.monitor.book.wake((rule, key))
            self.site.audit.note("unsnooze", target, actor)
        else:
            minutes, reason = _minutes(form.get("minutes", "")), form.get("reason", "").strip()[:LONGEST_REASON]
            if not reason:
                raise FieldError("reason", "Reason must not be empty: other operators read why the alarm is snoozed.")
            until = self.monitor.queries.clock() + minutes * 60 * SECOND
            if not self.monitor.book.snooze((rule, key), Snooze(until, actor.user or "anonymous", reason)):
                raise HttpError(409, "Too many alarms are snoozed. Unsnooze some of them, or snooze a whole rule.")
            self.site.audit.note("snooze", target, actor, minutes=str(minutes), reason=reason)
        await self.monitor.store.put_snoozes(self.monitor.book.snoozes)
        return self.site.renderer.url("alarms", did=action)

    def _topic_of(self, key: Id) -> str:
        """Return the topic of an alarm; "" without one, or if it is not raised: then it takes the right to all topics."""
        return next((one.subject.topic for one in self.monitor.book.all() if one.id == key), "")

    async def set_thresholds(self, request: Request, form: Form) -> str:
        """Set the thresholds of one rule, turn it on or off, or return to the configured values."""
        check_action(who_asks(request), "set-alarms", "")
        rule = BY_NAME.get(form.get("rule", ""))
        if rule is None:
            raise HttpError(400, "Unknown alarm rule.")
        thresholds, changed = self.monitor.checks.thresholds, dict[str, Any]()
        for one in rule.thresholds:
            before = thresholds.value(rule.name, one.name)
            given = "" if form.get("action") == "reset" else form.get(one.name, "").strip()
            if given != f"{before:g}":
                try:
                    thresholds.set(f"{rule.name}.{one.name}", given)
                except ValueError as error:
                    raise FieldError(one.name, f"{error}.") from None
                changed[one.name] = f"{before:g} -> {thresholds.value(rule.name, one.name):g}"
        state = {"off": OFF, "on": "on"}.get(form.get("action", ""), "" if form.get("action") == "reset" else None)
        if state is not None:
            thresholds.set(rule.name, state)
            changed["rule"] = "on" if thresholds.is_on(rule) else OFF
        self.site.audit.note("set alarm", rule.name, self.site.access.actor(request), **changed)
        await self.monitor.store.put_thresholds(thresholds.on_page)
        return self.site.renderer.url("alarms", "rules", did="set-alarms")


def _minutes(text: str) -> int:
    """Return the minutes of a snooze. Raises HttpError 400."""
    error = f"Duration must be a whole number of minutes from 1 to {MOST_MINUTES}."
    return number_of("minutes", text, 1, MOST_MINUTES, error)
