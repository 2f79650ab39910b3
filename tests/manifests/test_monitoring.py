"""The files for Prometheus and Grafana use only series and labels that exist."""

import json
import re
from itertools import combinations

import pytest
import yaml
from tests.manifests.conftest import MANIFESTS
from tests.manifests.promql import parse_query
from tests.manifests.series import OF_PROMETHEUS, OF_TARGETS, list_series

MONITORING = MANIFESTS / "monitoring"
SERIES = list_series()
DURATION = re.compile(r"\d+[smh]")


def load(name):
    return yaml.safe_load((MONITORING / name).read_text(encoding="utf-8"))


ALERTS = [
    rule
    for name in ("alerts.yaml", "alerts-teams.yaml")
    for group in load(name)["groups"]
    for rule in group["rules"]
]
DASHBOARDS = [
    json.loads((MONITORING / name).read_text(encoding="utf-8"))
    for name in ("dashboard.json", "dashboard-teams.json")
]
PANELS = [
    panel for dashboard in DASHBOARDS for panel in dashboard["panels"] if panel["type"] != "row"
]
RECORDED = [rule for group in load("usage.yaml")["groups"] for rule in group["rules"]]
EXPRESSIONS = [
    *(pytest.param(rule["expr"], id=rule["record"]) for rule in RECORDED),
    *(pytest.param(rule["expr"], id=rule["alert"]) for rule in ALERTS),
    *(
        pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
        for panel in PANELS
        for target in panel["targets"]
    ),
]
each_alert = pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one["uid"])
each_panel = pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])


def problems_of(expression: str) -> list[str]:
    """Return the unknown series and labels of an expression."""
    query = parse_query(expression)
    problems = []
    labels = set(OF_TARGETS)
    for selector in query.selectors:
        if selector.name in OF_PROMETHEUS:
            continue
        series = SERIES.get(selector.name)
        if series is None:
            problems.append(f"there is no series {selector.name!r}")
            continue
        labels |= series.labels
        for label, (operator, value) in selector.matchers.items():
            problems += problems_of_matcher(series, label, operator, value)
    return problems + [f"nothing has the label {one!r}" for one in query.grouping - labels]


def problems_of_matcher(series, label, operator, value):
    if label in OF_TARGETS or value.startswith("$"):
        return []  # or chosen by who looks at the dashboard
    known = series.values.get(label)
    if known is None:
        return [f"there is no label {label!r}"]
    wanted = value.split("|") if "Re" in operator else [value]
    return [f"{label} is never {one!r}" for one in wanted if one not in known]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_use_existing_series(expression):
    assert problems_of(expression) == []


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_counters_are_only_used_as_rates(expression):
    """Counters start at 0 again after a restart."""
    selectors = parse_query(expression).selectors
    ours = [one for one in selectors if one.name not in OF_PROMETHEUS]
    assert [one.name for one in ours if one.is_range != SERIES[one.name].is_counter] == []


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("rate(koord_binds[5m])", "there is no series 'koord_binds'"),
        ('koord_binds_total{result="Done"}', "there is no label 'result'"),
        ('koord_binds_total{outcome=~"Done|done"}', "outcome is never 'done'"),
        ("sum by (reason) (koord_binds_total)", "nothing has the label 'reason'"),
        ("koord_leader + koord_bind", "there is no series 'koord_bind'"),
    ],
)
def test_invalid_expressions_are_found(expression, problem):
    assert problems_of(expression) == [problem]


def test_syntax_errors_are_found():
    with pytest.raises(ValueError, match="unclosed"):
        problems_of("sum(rate(koord_binds_total[5m])")


def test_recording_rules_name_what_they_keep_and_over_which_time():
    for rule in RECORDED:
        assert rule.keys() == {"record", "expr"}
        assert re.fullmatch(r"koord:[a-z_]+:(rate)?\d+[hd]", rule["record"])


@each_alert
def test_alerts_are_valid_prometheus_rules(rule):
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert rule["annotations"].keys() == {"summary", "description"}
    assert DURATION.fullmatch(rule.get("for", "0s"))


@each_alert
def test_alerts_name_only_labels_that_survive_their_expression(rule):
    named = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
    query = parse_query(rule["expr"])
    assert named <= (query.grouping or OF_TARGETS)


def test_alerts_for_people_tell_whom_they_concern():
    """Recipes route them by their labels."""
    rules = [rule for group in load("alerts-teams.yaml")["groups"] for rule in group["rules"]]
    groupings = [parse_query(rule["expr"]).grouping for rule in rules]
    assert all(grouping & {"quota", "name", "model"} for grouping in groupings)


def test_alerts_are_named_once():
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names))


FAMILIES = {re.sub(r"_(bucket|sum|count)$", "", name) for name in SERIES if "koord_" in name}


def test_every_series_is_on_the_dashboard():
    text = " ".join(target["expr"] for panel in PANELS for target in panel["targets"])
    assert [family for family in FAMILIES if family not in text] == []


@each_panel
def test_panels_have_descriptions(panel):
    assert panel["description"]
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    assert [target["refId"] for target in panel["targets"]]


@each_dashboard
def test_panels_do_not_overlap(dashboard):
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    assert not [pair for pair in combinations(places, 2) if overlap(*pair)]
    identities = [panel["id"] for panel in dashboard["panels"]]
    assert len(identities) == len(set(identities))


def overlap(one, other):
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


@each_dashboard
def test_the_dashboard_defines_its_variables(dashboard):
    has = {variable["name"] for variable in dashboard["templating"]["list"]}
    asked = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard)))
    assert asked == has


def test_what_series_say_of_pods_is_not_replaced_by_the_pod_that_serves_them():
    (job,) = load("scrape.yaml")["scrape_configs"]
    (endpoint,) = load("pod-monitor.yaml")["spec"]["podMetricsEndpoints"]
    assert job["honor_labels"] is True
    assert endpoint["honorLabels"] is True


def test_scraping_finds_the_pods_of_the_operators():
    (job,) = load("scrape.yaml")["scrape_configs"]
    deployment = yaml.safe_load((MANIFESTS / "process/deployment.yaml").read_text("utf-8"))
    kustomization = yaml.safe_load((MANIFESTS / "process/kustomization.yaml").read_text("utf-8"))
    (port,) = deployment["spec"]["template"]["spec"]["containers"][0]["ports"]
    name = kustomization["labels"][0]["pairs"]["app.kubernetes.io/name"]
    keep, *added = job["relabel_configs"]
    assert keep["regex"] == f"{name};{port['name']}"
    assert {rule["target_label"] for rule in added} | {"job", "instance"} == OF_TARGETS
    assert job["kubernetes_sd_configs"][0]["namespaces"]["names"] == [kustomization["namespace"]]
    jobs = {one for _, one in re.findall(r'(job)=\\?"([^"\\]+)', json.dumps([DASHBOARDS, ALERTS]))}
    assert jobs == {job["job_name"]}
