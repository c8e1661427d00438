"""The checker of PromQL, and that every panel and alert passes it."""

from __future__ import annotations

import json

import pytest
import yaml

from tests.support import promql
from tests.support.environment import REPOSITORY

MONITORING = REPOSITORY / "deploy" / "k8s" / "components" / "monitoring"
FOUND = list(promql.expressions(MONITORING))


@pytest.mark.parametrize(("where", "expression"), FOUND, ids=[where for where, _ in FOUND])
def test_every_expression_is_well_formed(where: str, expression: str) -> None:
    assert promql.parse(expression).metrics


def test_the_named_faults_have_alerts_with_a_summary() -> None:
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["spec"]["groups"][0]["rules"]
    alerts = {rule["alert"].removeprefix("SglangWorker") for rule in rules}
    wanted = {"DrainStuck", "RanksDisagree", "KernelFallback", "EngineDied", "EngineHung"}
    assert wanted <= alerts and len(alerts) == len(rules)
    page = (REPOSITORY / "docs" / "metrics.md").read_text()
    assert [alert for alert in alerts if f"| SglangWorker{alert} |" not in page] == []


def test_panels_have_their_own_numbers_and_do_not_overlap() -> None:
    panels = json.loads((MONITORING / "sglang-worker.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


def test_series_and_labels_are_found_wherever_they_stand() -> None:
    asked = promql.parse(
        'histogram_quantile(0.9, sum by (pod, le) (rate(a_bucket{x=~"y"}[5m]))) > 2 '
        "and on (namespace) (b:c / -d) unless on (pod) absent(e)"
    )
    assert asked.metrics == {"a_bucket", "b:c", "d", "e"}
    assert asked.labels == {"pod", "le", "x", "namespace"}


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "a +",
        "sum(a",
        "a)",
        "a{x}",
        "a{x=y}",
        "rate(a)",
        "nosuch(a)",
        "a b",
        "sum by pod (a)",
        "a == == b",
        "a[5]",
        "a $ b",
    ],
)
def test_what_prometheus_would_refuse_is_refused(wrong: str) -> None:
    with pytest.raises(promql.Malformed):
        promql.parse(wrong)
