"""deploy/chart, rendered by Helm's library: valid resources that fit together, and daemons that accept their options."""

import json
import re
import subprocess
import sys
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from docs.flags_page import OPTIONS
from penstock import __version__
from shared.configuration import parse
from tests.cases import each
from tests.daemons import ROOT

pytestmark = pytest.mark.process  # Helm, as a library, in programs of their own
CHART = ROOT / "deploy" / "chart"
SECRETS = {"secretName": "cluster", "tls": {"secretName": "nodes"}}
CASES: dict[str, dict[str, Any]] = {
    "one node": {"nsqd": {"replicas": 1}},
    "a cluster": {"cluster": SECRETS},
    "everything": {
        "cluster": {"secretName": "cluster", "tls": {"issuerRef": {"name": "ca", "kind": "Issuer"}}},
        "tls": {"issuerRef": {"name": "ca"}, "required": True},
        "auth": {"secretName": "auth", "adminTokenSecretName": "token"},
        "image": {"pullSecrets": ["registry"]},
        "nsqd": {
            "flags": {"retention": "24h", "enable-experiment": ["topology-aware-consumption"], "replicate": 2},
            "nodeSelector": {"disk": "nvme"}, "tolerations": [{"key": "mq", "operator": "Exists"}],
            "env": [{"name": "TZ", "value": "UTC"}], "storage": {"storageClassName": "fast"},
        },
        "networkPolicy": {"monitoring": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "merge": {
            "nsqdStatefulSet": {"spec": {"template": {"spec": {"priorityClassName": "high"}}}},
            "nodeCertificate": {"spec": {"duration": "720h"}},
        },
        "patch": {
            "nsqdStatefulSet": [
                {"op": "test", "path": "/spec/template/spec/priorityClassName", "value": "high"},
                {"op": "replace", "path": "/spec/template/spec/priorityClassName", "value": "higher"},
            ],
        },
    },
    "no extras": {"nsqd": {"replicas": 1}, "nsqadmin": {"enabled": False}, "networkPolicy": {"enabled": False}},
}  # fmt: skip
REFUSED: dict[str, dict[str, Any]] = {
    "cluster.secretName": {},
    "cluster.tls": {"cluster": {"secretName": "cluster"}},
    "replicas": {"nsqd": {"replicas": 0}},
    "surprise": {"surprise": 1},
    "nsqdStatefulset": {"merge": {"nsqdStatefulset": {}}},
    "nsqadmindeployment": {"patch": {"nsqadmindeployment": []}},
}
# RFC 6902, appendix A by its numbers, and some more: a document, the patch, and the result or a part of the error.
PATCHES: dict[str, tuple[Any, list[dict[str, Any]], Any]] = {
    "A.1": ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    "A.2": (["bar", "baz"], [{"op": "add", "path": "/1", "value": "qux"}], ["bar", "qux", "baz"]),
    "A.3": ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    "A.4": (["bar", "qux", "baz"], [{"op": "remove", "path": "/1"}], ["bar", "baz"]),
    "A.5": ({"baz": 0, "foo": 1}, [{"op": "replace", "path": "/baz", "value": 2}], {"baz": 2, "foo": 1}),
    "A.6": ({"a": {"b": 1, "c": 2}, "d": {}}, [{"op": "move", "from": "/a/b", "path": "/d/e"}], {"a": {"c": 2}, "d": {"e": 1}}),
    "A.7": (["all", "grass", "cows", "eat"], [{"op": "move", "from": "/1", "path": "/3"}], ["all", "cows", "eat", "grass"]),
    "A.8": ({"a": "b", "c": [1, 2]}, [{"op": "test", "path": "/a", "value": "b"}, {"op": "test", "path": "/c/1", "value": 2}],
            {"a": "b", "c": [1, 2]}),
    "A.9": ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], 'test /doc/baz: is "qux"'),
    "A.10": ({"foo": "bar"}, [{"op": "add", "path": "/child", "value": {"c": {}}}], {"foo": "bar", "child": {"c": {}}}),
    "A.11": ({}, [{"op": "add", "path": "/baz", "value": 1, "xyz": 2}], "xyz"),  # here an error, against slips
    "A.12": ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], "nothing is below"),
    "A.14": ({"/": 9, "~1": 10}, [{"op": "replace", "path": "/~01", "value": 11}, {"op": "remove", "path": "/~1"}], {"~1": 11}),
    "A.15": ({"~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], "test /doc/~01: is 10"),
    "A.16": (["bar"], [{"op": "add", "path": "/-", "value": ["abc"]}], ["bar", ["abc"]]),
    "copy": ({"a": [{"b": 1}]},
             [{"op": "copy", "from": "/a/0", "path": "/c"}, {"op": "replace", "path": "/c/b", "value": None}],
             {"a": [{"b": 1}], "c": {"b": None}}),
    "into itself": ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}], "is inside of"),
    "in place": ([[0, {"a": 1}]], [{"op": "add", "path": "/0/1/a", "value": 2}], [[0, {"a": 2}]]),
    "append": ([0], [{"op": "add", "path": "/1", "value": 1}], [0, 1]),
    "after the end": ([0], [{"op": "add", "path": "/2", "value": 1}], "no index 2"),
    "no element": ([0], [{"op": "remove", "path": "/1"}], "does not exist"),
    "no key": ({}, [{"op": "replace", "path": "/a", "value": 1}], "patch.nsqdService[0]: replace /doc/a: does not exist"),
    "no number": ([0, 1], [{"op": "remove", "path": "/01"}], "no index 01"),
    "no value": ({}, [{"op": "add", "path": "/a"}], "value"),
    "no source": ({}, [{"op": "copy", "path": "/a"}], "from"),
    "no operation": ({}, [{"op": "delete", "path": "/a"}], "op"),
    "no pointer": ({}, [{"op": "add", "path": "/~2", "value": 1}], "path"),
}  # fmt: skip
VERSIONS = "1.28", "1.37"  # of Kubernetes: the chart's kubeVersion, and the newest
CUSTOM = ("Certificate", "ServiceMonitor")  # their schemas are not Kubernetes's


@cache
def rendered() -> dict[str, Any]:
    """Return the resources of each case by name, or its error."""
    given = CASES | REFUSED | {name: patched(*case) for name, case in PATCHES.items()}
    command = [sys.executable, "-m", "tests.project.chart_renderer"]
    ran = subprocess.run(
        command, input=json.dumps([*given.values()]), capture_output=True, text=True, cwd=ROOT, check=True
    )
    found: dict[str, Any] = {}
    for name, result in zip(given, json.loads(ran.stdout), strict=True):
        found[name] = result if isinstance(result, dict) else resources("\n---\n".join(result))
    return found


def patched(document: Any, operations: list[dict[str, Any]], _result: Any) -> dict[str, Any]:
    """Return values with the document in a resource, and a patch of it."""
    below = [one | {name: f"/doc{one[name]}" for name in ("path", "from") if name in one} for one in operations]
    return {"nsqd": {"replicas": 1}, "merge": {"nsqdService": {"doc": document}}, "patch": {"nsqdService": below}}


def resources(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if isinstance(one, dict)]


def pods(case: str) -> list[dict[str, Any]]:
    return [one for one in rendered()[case] if one["kind"] in ("StatefulSet", "Deployment")]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_the_resources_are_valid_for_kubernetes(case: str, version: str) -> None:
    kinds = [one["kind"] for one in rendered()[case]]
    assert {"Service", "PodDisruptionBudget", "StatefulSet"} <= set(kinds)
    for one in rendered()[case]:
        if one["kind"] not in CUSTOM:
            kubernetes_validate.validate(one, version, strict=True)
    names = [(one["kind"], one["metadata"]["name"]) for one in rendered()[case]]
    assert len(set(names)) == len(names)
    assert all(one["metadata"]["namespace"] == "prod" for one in rendered()[case])


@pytest.mark.parametrize("case", CASES)
def test_what_one_resource_names_another_one_has(case: str) -> None:
    labels = [one["spec"]["template"]["metadata"]["labels"].items() for one in pods(case)]
    services = {one["metadata"]["name"]: one for one in rendered()[case] if one["kind"] == "Service"}
    for one in rendered()[case]:
        selector = one["spec"].get("selector") or one["spec"].get("podSelector")
        if selector is not None and one["kind"] != "ServiceMonitor":
            wanted = selector.get("matchLabels", selector).items()
            assert sum(wanted <= given for given in labels) == 1, one["metadata"]["name"]
    for one in pods(case):
        spec = one["spec"]["template"]["spec"]
        claims = [claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())]
        volumes = {volume["name"] for volume in spec["volumes"]} | set(claims)
        mounted = {mount["name"] for part in spec["containers"] for mount in part["volumeMounts"]}
        assert mounted == volumes
        assert one["kind"] == "Deployment" or one["spec"]["serviceName"] in services
        ports = {port["name"] for part in spec["containers"] for port in part["ports"]}
        for service in services.values():
            if service["spec"]["selector"].items() <= one["spec"]["template"]["metadata"]["labels"].items():
                assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports


@pytest.mark.parametrize("case", CASES)
def test_each_daemon_accepts_its_flags_and_variables(case: str) -> None:
    for one in pods(case):
        (container,) = one["spec"]["template"]["spec"]["containers"]
        program, *flags = container["args"]
        given = {entry["name"]: str(entry.get("value", "0")) for entry in container["env"]}
        known = {name.replace("$(POD_NAME)", "mq-0"): value for name, value in given.items()}
        options = parse(OPTIONS[program], program, flags, known)
        prefix = program.upper() + "_"
        for name in given:
            if name.startswith(prefix):
                assert hasattr(options, name.removeprefix(prefix).lower()), name


def test_a_cluster_knows_the_names_of_all_its_pods() -> None:
    (nsqd,) = [one for one in pods("a cluster") if one["metadata"]["name"] == "mq-penstock-nsqd"]
    variables = {
        entry["name"]: entry.get("value") for entry in nsqd["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    peers = variables["NSQD_CLUSTER_PEER"].split(",")
    broadcast = variables["NSQD_BROADCAST_ADDRESS"]
    assert peers == [broadcast.replace("$(POD_NAME)", f"mq-penstock-nsqd-{number}") + ":4154" for number in range(3)]
    services = {one["metadata"]["name"] for one in rendered()["a cluster"] if one["kind"] == "Service"}
    assert broadcast == f"$(POD_NAME).{nsqd['spec']['serviceName']}.prod.svc.cluster.local"
    assert nsqd["spec"]["serviceName"] in services


def test_what_is_merged_is_added_then_patched_and_the_rest_stays() -> None:
    (nsqd,) = [one for one in pods("everything") if one["metadata"]["name"] == "mq-penstock-nsqd"]
    spec = nsqd["spec"]["template"]["spec"]
    assert (spec["priorityClassName"], spec["automountServiceAccountToken"]) == ("higher", False)
    certificates = [one for one in rendered()["everything"] if one["kind"] == "Certificate"]
    assert [one["spec"].get("duration") for one in certificates] == [None, "720h", "720h", "720h"]
    assert [one["spec"].get("uris") for one in certificates[1:]] == [[f"penstock:node:{number}"] for number in range(3)]


@each("case", list(PATCHES))
def test_a_patch_does_what_rfc_6902_says(case: str) -> None:
    _, _, result = PATCHES[case]
    if isinstance(result, str):
        assert result in rendered()[case]["error"]
    else:
        (service,) = [one for one in rendered()[case] if one["metadata"]["name"] == "mq-penstock-nsqd" and "doc" in one]
        assert service["doc"] == result


@each("case", list(REFUSED))
def test_values_that_cannot_work_are_refused_by_name(case: str) -> None:
    assert case in rendered()[case]["error"]


def test_the_draining_before_a_stop_is_a_program() -> None:
    (nsqd,) = [one for one in pods("one node") if one["metadata"]["name"] == "mq-penstock-nsqd"]
    (container,) = nsqd["spec"]["template"]["spec"]["containers"]
    python, flag, program = container["lifecycle"]["preStop"]["exec"]["command"]
    assert (python, flag) == ("python", "-c")
    compile(program, "preStop", "exec")
    assert nsqd["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 60  # as compose and the units


def test_the_versions_are_the_package_s_and_the_schema_has_every_value() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(yaml.safe_load((CHART / "values.yaml").read_text()))
    listed = set(re.findall(r'"(\w+)"', (CHART / "templates/resources.yaml").read_text().split("}}")[0]))
    assert set(schema["definitions"]["resource"]["enum"]) == listed | {"nodeCertificate"}
