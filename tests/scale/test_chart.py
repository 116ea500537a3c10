"""Tests that Helm renders the chart, that the objects are valid for Kubernetes, and that the chart rejects invalid
values. The chart has not been run in a cluster.
"""

import json
import re
import subprocess
import sys

import pytest

from scale.charts import CHART, DEPLOY, EMBEDDED, EVERYTHING, IMAGE, VARIANTS, helm, one, render, yaml

validator = pytest.importorskip("kubernetes_validate", reason="NO KUBERNETES SCHEMAS: make scale")
jsonschema = pytest.importorskip("jsonschema", reason="NO JSON SCHEMA: make scale")

VERSIONS = ("1.30", "1.34", "1.37")
TEXT = {"type": "string", "minLength": 1}
# fields that the definitions of these custom resources require; the definitions are not installed in any of our
# clusters
RESOURCES = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {
        "required": ["selector", "endpoints"],
        "properties": {
            "jobLabel": TEXT,
            "selector": {"properties": {"matchLabels": {"type": "object"}}, "additionalProperties": False},
            "endpoints": {"items": {"required": ["port"], "properties": {"port": TEXT, "interval": TEXT}}},
        },
        "additionalProperties": False,
    },
    ("monitoring.coreos.com/v1", "PrometheusRule"): {
        "required": ["groups"],
        "properties": {
            "groups": {
                "type": "array",
                "items": {
                    "required": ["name", "rules"],
                    "properties": {
                        "name": TEXT,
                        "rules": {
                            "items": {
                                "required": ["alert", "expr"],
                                "properties": {
                                    "alert": TEXT,
                                    "expr": TEXT,
                                    "for": {"pattern": "^[0-9]+[smh]$"},
                                    "labels": {"additionalProperties": TEXT},
                                    "annotations": {"additionalProperties": TEXT},
                                },
                                "additionalProperties": False,
                            }
                        },
                    },
                    "additionalProperties": False,
                },
            }
        },
        "additionalProperties": False,
    },
    ("keda.sh/v1alpha1", "ScaledObject"): {
        "required": ["scaleTargetRef", "triggers"],
        "properties": {
            "scaleTargetRef": {"required": ["name"], "properties": {"name": TEXT}, "additionalProperties": False},
            "minReplicaCount": {"type": "integer"},
            "maxReplicaCount": {"type": "integer"},
            "cooldownPeriod": {"type": "integer"},
            "triggers": {
                "items": {
                    "required": ["type", "metadata"],
                    "properties": {
                        "type": {"const": "prometheus"},
                        "metadata": {
                            "required": ["serverAddress", "query", "threshold"],
                            "additionalProperties": TEXT,  # KEDA rejects numeric thresholds
                        },
                    },
                }
            },
        },
        "additionalProperties": False,
    },
    ("serving.kserve.io/v1alpha1", "ServingRuntime"): {
        "required": ["supportedModelFormats", "containers"],
        "properties": {
            "supportedModelFormats": {
                "items": {
                    "required": ["name"],
                    "properties": {"name": TEXT, "version": TEXT, "autoSelect": {"type": "boolean"}},
                    "additionalProperties": False,
                }
            },
            "protocolVersions": {"items": {"enum": ["v1", "v2", "grpc-v2"]}},
            "annotations": {"additionalProperties": TEXT},
            "containers": {"contains": {"properties": {"name": {"const": "kserve-container"}}}},
            "volumes": {"type": "array"},  # a separate test validates these two against Kubernetes' schema
        },
        "additionalProperties": False,
    },
    ("serving.kserve.io/v1beta1", "InferenceService"): {
        "required": ["predictor"],
        "properties": {
            "predictor": {
                "required": ["model"],
                "properties": {
                    "minReplicas": {"type": "integer"},
                    "maxReplicas": {"type": "integer"},
                    "model": {
                        "required": ["modelFormat"],
                        "properties": {
                            "modelFormat": {"required": ["name"], "additionalProperties": TEXT},
                            "runtime": TEXT,
                            "protocolVersion": {"enum": ["v1", "v2", "grpc-v2"]},
                            "storageUri": {"pattern": "^(s3|gs|https|pvc|hf)://"},
                            "resources": {"type": "object"},
                        },
                        "additionalProperties": False,
                    },
                },
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_every_object_is_valid_for_three_versions_of_kubernetes(values):
    objects = render(values)
    assert {each["kind"] for each in objects} >= {"Deployment", "Service", "PodDisruptionBudget"}
    for each in objects:
        resource = RESOURCES.get((each["apiVersion"], each["kind"]))
        if resource:
            jsonschema.validate(each["spec"], resource)
        else:
            for version in VERSIONS:
                validator.validate(each, version, strict=True)


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_helm_lints_without_a_warning(values):
    report = helm.lint(CHART, values, strict=True, kube_version="v1.34.0")
    assert not report["errors"]
    assert [message["error"] for message in report["messages"]] == ["icon is recommended"]


def test_the_validator_detects_a_misspelt_field_and_an_old_version():
    deployment = one(render(IMAGE), "Deployment")
    deployment["spec"]["replcas"] = 2
    with pytest.raises(validator.ValidationError, match="replcas"):
        validator.validate(deployment, "1.34", strict=True)
    scaler = one(render(VARIANTS["hpa"]), "HorizontalPodAutoscaler")
    with pytest.raises(validator.SchemaNotFoundError):
        validator.validate(scaler | {"apiVersion": "autoscaling/v2beta2"}, "1.34", strict=True)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "image.repository: the name of the image that you built from deploy/Dockerfile"),
        (IMAGE | {"replcas": 2}, "additional properties 'replcas' not allowed"),
        (IMAGE | {"replicas": 0}, "at '/replicas': minimum: got 0, want 1"),
        (IMAGE | {"server": "gpu"}, "at '/server': value must be one of 'triton', 'embedded'"),
        (IMAGE | {"models": {"path": "models"}}, "at '/models/path': 'models' does not match pattern"),
        (IMAGE | {"models": {"init": {"command": ["x"]}}}, "missing property 'image'"),
        (IMAGE | {"plan": {"onnx": "../x.onnx; rm -r /"}}, "at '/plan/onnx'"),
        (IMAGE | {"plan": {"shapes": {"min": "a:1x3", "opt": "a:$(id)", "max": "a:1"}}}, "at '/plan/shapes/opt'"),
        (IMAGE | {"graceSeconds": 1}, "at '/graceSeconds': minimum: got 1, want 4"),
        (IMAGE | {"tracing": {"url": "collector:4318"}}, "at '/tracing/url'"),
        (IMAGE | {"logFormat": "json"}, "at '/logFormat': value must be one of 'default', 'ISO8601'"),
        (EMBEDDED | {"logFormat": "ISO8601"}, "at '/logFormat': value must be one of 'default', 'text', 'json'"),
        (EMBEDDED | {"plan": {"enabled": True}}, "plan.enabled: TensorRT makes an engine on a GPU"),
        (IMAGE | {"gpus": 0, "plan": {"enabled": True}}, "plan.enabled: TensorRT makes an engine on a GPU"),
    ],
)
def test_invalid_values_are_rejected_by_name(values, words):
    with pytest.raises(helm.HelmError, match=re.escape(words)):
        render(values)


def test_every_value_is_in_the_schema_and_every_property_has_a_default():
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = helm.Chart.load(CHART).values

    def compare(properties, given, path):
        assert set(given) == set(properties), path
        for name, inner in properties.items():
            if "properties" in inner and inner is not schema["properties"]["models"]["properties"]["init"]:
                free = {"requests", "limits"} if name == "resources" else set()
                compare({k: v for k, v in inner["properties"].items() if k not in free},
                        {k: v for k, v in given[name].items() if k not in free}, f"{path}.{name}")  # fmt: skip

    compare({name: inner for name, inner in schema["properties"].items() if name != "global"}, values, "$")


def container(values):
    (found,) = one(render(values), "Deployment")["spec"]["template"]["spec"]["containers"]
    return found


@pytest.mark.parametrize("values", [IMAGE, EMBEDDED], ids=["triton", "embedded"])
def test_the_pod_has_time_for_its_drain_and_for_requests_in_flight(values):
    pod = one(render(values | {"drainSeconds": 20, "graceSeconds": 40}), "Deployment")["spec"]["template"]["spec"]
    (main,) = pod["containers"]
    (seconds,) = main["lifecycle"]["preStop"]["exec"]["command"][1:]
    grace = next(word for word in main["args"] if word.startswith(("--grace=", "--exit-timeout-secs=")))
    assert int(seconds) == 20
    assert int(grace.partition("=")[2]) == 40
    assert pod["terminationGracePeriodSeconds"] >= 20 + 40 + 10


@pytest.mark.parametrize("values", VARIANTS.values(), ids=VARIANTS)
def test_no_container_can_write_to_its_root_or_gain_privileges(values):
    pod = one(render(values), "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    for each in [*pod.get("initContainers", []), *pod["containers"]]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, each["name"]
    models = [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "models"]
    assert all(mount["readOnly"] for mount in models)


def test_shared_memory_follows_its_formula():
    values = EMBEDDED | {"sharedMemory": {"instances": 3, "requestMiB": 32, "images": 128, "tensorKiB": 588}}
    (shm,) = [each for each in one(render(values), "Deployment")["spec"]["template"]["spec"]["volumes"]
              if each["name"] == "shm"]  # fmt: skip
    tensors_mib = 74  # 128 tensors of 588 KiB, rounded up
    assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": f"{2 * 3 * (32 + tensors_mib) + 64}Mi"}


def test_every_option_is_supported_by_its_program():
    """The options of the embedded server are listed by ``pixprep serve --help``.

    The options of tritonserver are listed in the help of the installed version.
    """
    from pixprep.serving.embedded.wheel import environment, find_wheel  # noqa: PLC0415  (its environment alone has it)

    command = [sys.executable, "-m", "pixprep", "serve", "--help"]
    ours = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wheel = find_wheel()
    command = [wheel.server, "--help"]
    help_ = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(wheel))
    theirs = help_.stdout + help_.stderr
    newer = {"--http-max-input-size"}  # added in Triton 2.59; this test uses 2.51
    for values, known, missing in ((EMBEDDED, ours, set()), (EVERYTHING | {"extraArgs": []}, theirs, newer)):
        options = {word.partition("=")[0] for word in container(values)["args"]}
        assert options, values
        assert {option for option in options if f"{option} " not in known.replace("\n", " ")} == missing


def test_the_probes_of_a_gpu_pod_detect_a_dead_process():
    main = container(IMAGE | {"probes": {"preprocess": "pets_preprocess"}})
    assert main["livenessProbe"]["httpGet"]["path"] == "/v2/models/pets_preprocess/ready"
    assert main["readinessProbe"]["httpGet"]["path"] == "/v2/health/ready"


def test_the_engine_is_built_once_for_each_gpu_tensorrt_and_model(tmp_path):
    """The test runs the script of the init container, with fakes of nvidia-smi and trtexec that print realistic
    output.
    """
    pod = one(render(EVERYTHING), "Deployment")["spec"]["template"]["spec"]
    plan = next(each for each in pod["initContainers"] if each["name"] == "plan")
    programs, plans, models = (tmp_path / name for name in ("bin", "plans", "models"))
    for folder in (programs, plans, models / "classifier" / "1"):
        folder.mkdir(parents=True)
    (models / "classifier/1/model.onnx").write_bytes(b"weights")
    calls = tmp_path / "calls"
    scripts = {
        "nvidia-smi": "echo 9.0",
        "trtexec": f"""for word; do case "$word" in
            --help) echo '&&&& RUNNING TensorRT.trtexec [TensorRT v101300] # trtexec'; exit 0;;
            --saveEngine=*) echo engine > "${{word#--saveEngine=}}"; echo "$@" >> {calls};; esac; done""",
    }
    for name, text in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {entry["name"]: entry["value"].replace("/models/", f"{models}/") for entry in plan["env"]}
    environment |= {"PATH": f"{programs}:/usr/bin:/bin", "HOSTNAME": "pod-1"}
    command = [*plan["command"], plan["args"][0].replace("/plans/", f"{plans}/")]

    def made():
        subprocess.run(command, check=True, env=environment, capture_output=True)
        return calls.read_text().splitlines(), sorted(path.name for path in plans.iterdir())

    (call,), (kept,) = made()
    assert "--minShapes=input:1x3x224x224 --optShapes=input:16x3x224x224 --maxShapes=input:64x3x224x224" in call
    assert re.fullmatch(r"sm90-trt101300-[0-9a-f]{16}-[0-9a-f]{8}\.plan", kept)
    assert (models / "classifier/1/model.plan").read_text() == "engine\n"
    assert len(made()[0]) == 1  # the engine is kept
    (models / "classifier/1/model.onnx").write_bytes(b"other weights")
    assert len(made()[0]) == 2
    scripts["nvidia-smi"] = "echo 8.9"
    (programs / "nvidia-smi").write_text("#!/bin/sh\necho 8.9\n")
    calls_, names = made()
    assert len(calls_) == 3
    assert len(names) == 3


def test_only_clients_reach_the_ports():
    policy = one(render(IMAGE), "NetworkPolicy")["spec"]
    assert policy["egress"] == []
    ports = [[port["port"] for port in rule["ports"]] for rule in policy["ingress"]]
    assert ports == [["http", "grpc"], ["metrics"]]
    assert one(render(EVERYTHING), "NetworkPolicy")["spec"]["egress"] == [{}]


def test_autoscaling_uses_the_queued_requests():
    keda = one(render(EVERYTHING), "ScaledObject")["spec"]["triggers"][0]["metadata"]
    assert 'nv_inference_pending_request_count{namespace="shop", pod=~"vision-.*"}' in keda["query"]
    hpa = one(render(VARIANTS["hpa"]), "HorizontalPodAutoscaler")["spec"]
    (metric,) = hpa["metrics"]
    adapter = (DEPLOY / "chart" / "adapter.yaml").read_text()
    assert f"as: {metric['pods']['metric']['name']}" in adapter
    for objects in (render(EVERYTHING), render(VARIANTS["hpa"])):
        assert "replicas" not in one(objects, "Deployment")["spec"]  # otherwise, each upgrade would undo the scaling


def test_every_gpu_deployment_has_the_drivers_video_libraries():
    """Without these libraries, the hardware JPEG engine is missing, and images are silently decoded with CUDA."""
    said = {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility,video"}
    runtime, _ = yaml.safe_load_all((DEPLOY / "kserve.yaml").read_text(encoding="utf-8"))
    assert said in runtime["spec"]["containers"][0]["env"]
    assert said in container(IMAGE | {"gpus": 1})["env"]
    assert said not in container(IMAGE | {"gpus": 0})["env"]
    assert f"ENV {said['name']}={said['value']}" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()


def test_the_kserve_manifest_is_valid_and_runs_the_same_as_the_chart():
    runtime, service = yaml.safe_load_all((DEPLOY / "kserve.yaml").read_text(encoding="utf-8"))
    for each in (runtime, service):
        jsonschema.validate(each["spec"], RESOURCES[each["apiVersion"], each["kind"]])
    model = service["spec"]["predictor"]["model"]
    assert model["runtime"] == runtime["metadata"]["name"]
    assert model["modelFormat"]["name"] in [each["name"] for each in runtime["spec"]["supportedModelFormats"]]
    pod = {name: runtime["spec"][name] for name in ("containers", "volumes")}
    (main,) = pod["containers"]
    of_the_chart = container(IMAGE)
    ours = {"--model-repository=/mnt/models", "--http-port=8080"}
    assert set(main["args"]) - ours <= set(of_the_chart["args"])
    assert main["command"] == of_the_chart["command"]
    main["resources"] = model["resources"]
    for version in VERSIONS:
        validator.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vision"}, "spec": pod}, version, strict=True
        )
