"""Runs a real Prometheus that scrapes real servers with the configuration in deploy/, sends load to these servers, and
reads the dashboard's panels.
"""

import http.client
import json
import shutil
import subprocess
import threading
from contextlib import contextmanager
from urllib.parse import urlencode

from scale.charts import CHART, DEPLOY, yaml
from scale.kubelet import free_ports
from support.serving import BAD, PHOTO, ClientError, ask_http

PROMETHEUS = shutil.which("prometheus")
ALERTS = CHART / "files" / "alerts.yaml"
INTERVAL = "10s"


def panels():
    """Return (title, unit, [(expression, legend)]) for each panel. Variables are replaced with the values that Grafana
    would insert.
    """
    found = json.loads((CHART / "files" / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    filled = {"$__rate_interval": INTERVAL, "$instance": ".*"}

    def fill(text):
        for name, value in filled.items():
            text = text.replace(name, value)
        return text

    return [
        (
            panel["title"],
            panel["fieldConfig"]["defaults"]["unit"],
            [(fill(target["expr"]), target["legendFormat"]) for target in panel["targets"]],
        )
        for panel in found
    ]


class Prometheus:
    """Prometheus process that scrapes ``targets`` every second with deploy/prometheus.yml."""

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
        """Return the data of an API call, or None until the API is available."""
        try:
            connection = http.client.HTTPConnection(self._address, timeout=10)
            connection.request("GET", f"/api/v1/{path}?{urlencode(words)}")
            response = connection.getresponse()
            body = response.read()
        except OSError:
            return None
        finally:
            connection.close()
        if response.status == http.client.SERVICE_UNAVAILABLE:  # Prometheus has just started
            return None
        answer = json.loads(body)
        assert answer["status"] == "success", answer
        return answer["data"]

    def value(self, query):
        """Return the current values of a query, without NaN."""
        found = self.ask("query", query=query)
        return [float(each["value"][1]) for each in found["result"] if each["value"][1] != "NaN"] if found else []

    def close(self):
        self._process.terminate()
        self._process.wait()
        self._log.close()


@contextmanager
def load(servers):
    """Send requests to each server during the block. One request in five contains an invalid image."""
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
