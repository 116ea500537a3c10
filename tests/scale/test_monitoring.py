"""What an operator watches: each query of the dashboard and each alert, asked of a real Prometheus.

Two embedded servers have load, some of it broken images; Prometheus scrapes them by the file that deploy/ ships.
"""

import http.client
import json
import re
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager
from urllib.parse import urlencode

import pytest

from charts import CHART, DEPLOY, yaml
from kubelet import free_ports
from serving import BAD, PHOTO, ClientError, Serve, ask_http, wait_until, write_repository

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
DASHBOARD = CHART / "files" / "dashboard.json"
ALERTS = CHART / "files" / "alerts.yaml"
INTERVAL = "10s"

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="NO PROMETHEUS: apt-get install prometheus"),
]


def panels():
    return json.loads(DASHBOARD.read_text())["panels"]


def queries():
    """(title of the panel, expression) of each query, with Grafana's variables as Grafana fills them in."""
    found = [(panel["title"], target["expr"]) for panel in panels() for target in panel["targets"]]
    return [(title, text.replace("$__rate_interval", INTERVAL).replace("$instance", ".*")) for title, text in found]


class Prometheus:
    """A running Prometheus that scrapes ``targets`` every second by deploy/prometheus.yml."""

    def __init__(self, folder, targets):
        config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
        config["global"]["scrape_interval"] = "1s"
        config["rule_files"] = [str(ALERTS)]
        config["scrape_configs"][0]["static_configs"][0]["targets"] = targets
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._address = f"127.0.0.1:{free_ports(['web'])['web']}"
        options = {"config.file": folder / "prometheus.yml", "storage.tsdb.path": folder / "data"}
        command = [PROMETHEUS, *(f"--{name}={value}" for name, value in options.items())]
        self._log = (folder / "prometheus.log").open("w")
        self._process = subprocess.Popen([*command, f"--web.listen-address={self._address}"], stderr=self._log)

    def ask(self, path, **words):
        """The data of an API call; None while it is not there."""
        try:
            connection = http.client.HTTPConnection(self._address, timeout=10)
            connection.request("GET", f"/api/v1/{path}?{urlencode(words)}")
            response = connection.getresponse()
            body = response.read()
        except OSError:
            return None
        finally:
            connection.close()
        if response.status == http.client.SERVICE_UNAVAILABLE:  # it has just begun
            return None
        answer = json.loads(body)
        assert answer["status"] == "success", answer
        return answer["data"]

    def value(self, query):
        """The numbers of a query now, without those that are none."""
        found = self.ask("query", query=query)
        return [float(each["value"][1]) for each in found["result"] if each["value"][1] != "NaN"] if found else []

    def close(self):
        self._process.terminate()
        self._process.wait()
        self._log.close()


@contextmanager
def load(servers):
    """Requests to each server, one in five with an image that is none."""
    ending = threading.Event()

    def work(address):
        while not ending.is_set():
            for image in (PHOTO, PHOTO, BAD[0], PHOTO, PHOTO):
                try:
                    ask_http(address, "ensemble", [image])
                except ClientError:
                    assert image == BAD[0]

    threads = [threading.Thread(target=work, args=[server.address]) for server in servers for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


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
                time.sleep(20)  # of load: what rates and quantiles are made of
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


def test_each_alert_fires_when_it_should_and_only_then():
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


@pytest.mark.parametrize(("title", "query"), queries())
def test_every_query_of_the_dashboard_has_data(prometheus, title, query):
    assert prometheus.value(query), f"{title}: {query}"


def test_a_query_for_what_nobody_counts_would_have_none(prometheus):
    assert not prometheus.value("sum(rate(pixprep_pictures_total[10s]))")


def test_every_metric_of_an_alert_is_there(prometheus):
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    names = {name for rule in rules for name in re.findall(r"\b(?:nv|pixprep)_\w+|\bup\b", rule["expr"])}
    assert len(names) >= 7
    for name in names:
        assert prometheus.value(name), name


def test_the_images_that_fail_raise_their_alert(prometheus):
    """One in five is none: the expression holds, whatever its ``for``; the others do not."""
    rules = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
    quick = {name: re.sub(r"\[\d+m\]", f"[{INTERVAL}]", text) for name, text in rules.items()}
    assert prometheus.value(quick["PixprepImagesFail"])
    for name in ("PixprepDown", "PixprepRequestsWait", "PixprepErrors", "PixprepOnTheCpu"):
        assert not prometheus.value(quick[name]), name
