"""Tests that run each query of the dashboard and each alert in a real Prometheus, as an operator does.

Two embedded servers are under load that includes some broken images. Prometheus scrapes them with the configuration in
deploy/.
"""

import re
import shutil
import subprocess
import time

import pytest

from scale.charts import DEPLOY, yaml
from scale.monitoring import ALERTS, INTERVAL, PROMETHEUS, Prometheus, load, panels
from support.serving import Serve, wait_until, write_repository

PROMTOOL = shutil.which("promtool")
QUERIES = [(title, expression) for title, _, targets in panels() for expression, _ in targets]

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="NO PROMETHEUS: apt-get install prometheus"),
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitoring")
    repository = write_repository(folder / "models")
    with (
        Serve(repository, triton_log=folder / "a.log") as first,
        Serve(repository, triton_log=folder / "b.log") as second,
    ):
        server = Prometheus(folder, [first.metrics, second.metrics])
        try:
            with load([first, second]):
                wait_until(lambda: server.value("sum(rate(pixprep_images_total[10s]))"), "no scrape", within_s=60)
                time.sleep(20)  # rates and quantiles need several seconds of load
                yield server
        finally:
            server.close()


def test_promtool_accepts_the_rules_and_the_configuration(tmp_path):
    done = subprocess.run([PROMTOOL, "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for path in (DEPLOY / "prometheus.yml", ALERTS):
        shutil.copy(path, tmp_path)
    command = [PROMTOOL, "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_exactly_when_it_should():
    done = subprocess.run([PROMTOOL, "test", "rules", "alerts.test.yaml"], cwd=DEPLOY.parent / "tests" / "scale",
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tested_and_has_a_runbook():
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    tested = (DEPLOY.parent / "tests" / "scale" / "alerts.test.yaml").read_text()
    for rule in rules:
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"]
        assert f"alertname: {rule['alert']}\n" in tested


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_every_query_of_the_dashboard_has_data(prometheus, title, query):
    assert prometheus.value(query), f"{title}: {query}"


def test_a_query_for_a_metric_that_does_not_exist_has_no_data(prometheus):
    assert not prometheus.value("sum(rate(pixprep_pictures_total[10s]))")


def test_every_metric_of_an_alert_exists(prometheus):
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    names = {name for rule in rules for name in re.findall(r"\b(?:nv|pixprep)_\w+|\bup\b", rule["expr"])}
    assert len(names) >= 7
    for name in names:
        assert prometheus.value(name), name


def test_failing_images_raise_their_alert(prometheus):
    """One image in five is invalid, so the alert's expression is true. The test ignores the alert's ``for`` duration.

    The other alerts do not fire.
    """
    rules = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
    fast_rules = {name: re.sub(r"\[\d+m\]", f"[{INTERVAL}]", text) for name, text in rules.items()}
    assert prometheus.value(fast_rules["PixprepImagesFail"])
    for name in ("PixprepDown", "PixprepRequestsWait", "PixprepErrors", "PixprepOnTheCpu"):
        assert not prometheus.value(fast_rules[name]), name
