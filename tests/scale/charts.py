"""Renders the Helm chart with a real Helm."""

from pathlib import Path

import pytest

helm = pytest.importorskip("helm_python", reason="NO HELM: make scale")
yaml = pytest.importorskip("yaml", reason="NO YAML: make scale")

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart" / "pixprep"
IMAGE = {"image": {"repository": "registry.example/pixprep"}}
EMBEDDED = IMAGE | {"server": "embedded"}
EVERYTHING = IMAGE | {
    "plan": {"enabled": True, "claim": "plans"},
    "models": {"init": {"image": "fetcher:1", "command": ["fetch", "models"]}},
    "monitoring": {"serviceMonitor": True, "rules": True, "dashboard": True, "labels": {"release": "prometheus"}},
    "tracing": {"url": "http://collector:4318/v1/traces"},
    "autoscaling": {"kind": "keda"},
    "image": {"repository": "registry.example/pixprep", "pullSecrets": ["key"]},
    "extraArgs": ["--log-verbose=1"],
    "env": [{"name": "A", "value": "b"}],
    "nodeSelector": {"gpu": "l4"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "podAnnotations": {"a": "b"},
    "service": {"annotations": {"a": "b"}},
}
VARIANTS = {
    "default": IMAGE,
    "embedded": EMBEDDED,
    "everything": EVERYTHING,
    "hpa": EMBEDDED | {"autoscaling": {"kind": "hpa"}},
    "no gpu": IMAGE | {"gpus": 0},
    "plan, models in the image": IMAGE | {"plan": {"enabled": True}},
    "open": IMAGE | {"networkPolicy": {"enabled": False}},
}


def render(values, *, name="vision", namespace="shop"):
    """Return the objects of a release, in the order of their files."""
    found = helm.Chart.load(CHART).render(values, name=name, namespace=namespace)
    texts = [text for path, text in sorted(found.items()) if path.endswith(".yaml")]
    return [entry for text in texts for entry in yaml.safe_load_all(text) if entry]


def one(objects, kind, name=None):
    """Return the only object of this kind. If a name is given, return the object of this kind with this name."""
    (found,) = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found
