"""The manifests are valid, and mean what they should, as far as can be known without a cluster."""

import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes.client
import kubernetes_validate
import pytest
import yaml
from kubeflow import training

import estimator as est

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "kubernetes"
JOB_FILES = ("job-multi-worker.yaml", "job-parameter-server.yaml")
TFJOB_FILES = ("tfjob-multi-worker.yaml", "tfjob-parameter-server.yaml")
OTHER_FILES = ("network-policy.yaml", "storage.yaml")
OLDEST_KUBERNETES = "1.31"
PORT = 2222


def read(name):
    """The documents of a file, by kind and name."""
    found = {}
    for document in yaml.safe_load_all((FOLDER / name).read_text()):
        found[document["kind"], document["metadata"]["name"]] = document
    return found


def jobs_of(name):
    return {key[1]: document for key, document in read(name).items() if key[0] == "Job"}


def pod_templates(name):
    """The pod template of each role."""
    documents = read(name)
    if name in JOB_FILES:
        return {
            job.removeprefix("mnist-"): document["spec"]["template"]
            for job, document in jobs_of(name).items()
        }
    specs = documents["TFJob", "mnist"]["spec"]["tfReplicaSpecs"]
    return {role.lower(): spec["template"] for role, spec in specs.items()}


def container_of(template):
    (container,) = template["spec"]["containers"]
    return container


# --- Valid ---------------------------------------------------------------------------------------


def test_every_file_is_tested():
    assert {path.name for path in FOLDER.glob("*.yaml")} == {
        *JOB_FILES,
        *TFJOB_FILES,
        *OTHER_FILES,
    }


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("name", [*JOB_FILES, *OTHER_FILES])
def test_kubernetes_knows_every_field(name, version):
    for document in read(name).values():
        checked = kubernetes_validate.validate(document, version, strict=True)
        assert version.startswith(checked)  # Not one of an older version, for want of it.


@pytest.mark.parametrize("name", TFJOB_FILES)
def test_a_pod_of_the_operator_is_valid_too(name):
    for role, template in pod_templates(name).items():
        pod = {**template, "apiVersion": "v1", "kind": "Pod"}
        pod["metadata"] = {**template["metadata"], "name": role}
        assert kubernetes_validate.validate(pod, OLDEST_KUBERNETES, strict=True)


def check_model(value, type_name, place="TFJob"):
    """Raises unless the operator's client has a field for each key, and the value has its type."""
    if nested := re.fullmatch(r"list\[(.*)\]", type_name):
        assert isinstance(value, list), place
        for index, item in enumerate(value):
            check_model(item, nested[1], f"{place}[{index}]")
    elif nested := re.fullmatch(r"dict\(str, (.*)\)", type_name):
        assert isinstance(value, dict), place
        for key, item in value.items():
            check_model(item, nested[1], f"{place}.{key}")
    elif hasattr(training, type_name) or hasattr(kubernetes.client, type_name):
        model = getattr(training, type_name, None) or getattr(kubernetes.client, type_name)
        names = {key: name for name, key in model.attribute_map.items()}
        assert set(value) <= set(names), place
        for key, item in value.items():
            check_model(item, model.openapi_types[names[key]], f"{place}.{key}")
        # The client's own checks: what is required, and which values there are.
        model(**{names[key]: item for key, item in value.items()})
    else:
        types = {"str": str, "int": int, "bool": bool, "object": object}
        assert isinstance(value, types[type_name]), place


@pytest.mark.parametrize("name", TFJOB_FILES)
def test_the_operators_client_knows_every_field(name):
    ((_, document),) = read(name).items()
    check_model(document, "KubeflowOrgV1TFJob")


def test_a_field_that_is_not_there_would_be_found():
    (document,) = read(TFJOB_FILES[0]).values()
    document["spec"]["runPolicy"]["cleanPods"] = "None"
    with pytest.raises(AssertionError, match=r"TFJob\.spec\.runPolicy"):
        check_model(document, "KubeflowOrgV1TFJob")
    job = jobs_of(JOB_FILES[0])["mnist-worker"]
    job["spec"]["completionmode"] = "Indexed"
    with pytest.raises(kubernetes_validate.ValidationError, match="completionmode"):
        kubernetes_validate.validate(job, OLDEST_KUBERNETES, strict=True)


# --- What a pod gets -----------------------------------------------------------------------------


def environment_of(documents, job, index):
    """The container's variables in pod `index`, put together as the kubelet does."""
    variables = {}
    for entry in container_of(job["spec"]["template"])["env"]:
        source = entry.get("valueFrom", {})
        if "configMapKeyRef" in source:
            reference = source["configMapKeyRef"]
            value = documents["ConfigMap", reference["name"]]["data"][reference["key"]]
        elif "fieldRef" in source:
            path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            assert source == {"fieldRef": {"fieldPath": path}}
            value = str(index)
        else:
            # A variable is known only after it, and one that is not stays as it is.
            value = re.sub(r"\$\((\w+)\)", lambda m: variables.get(m[1], m[0]), entry["value"])
        variables[entry["name"]] = value
    return variables


@pytest.mark.parametrize("name", JOB_FILES)
def test_each_pod_of_a_job_is_a_task_at_its_own_address(name):
    documents = read(name)
    sizes = {}
    for job_name, job in jobs_of(name).items():
        spec = job["spec"]
        assert (spec["completionMode"], spec["parallelism"]) == ("Indexed", spec["completions"])
        role = job_name.removeprefix("mnist-")
        sizes[role] = spec["completions"]
        for index in range(spec["completions"]):
            text = environment_of(documents, job, index)["TF_CONFIG"]
            cluster = est.parse_tf_config(text)
            assert (cluster.task_type, cluster.task_id) == (role, index)
            assert cluster.is_chief == ((role, index) == ("worker", 0))
            if role != "evaluator":
                host = f"{job_name}-{index}.{spec['template']['spec']['subdomain']}"
                assert cluster.addresses[role][index] == f"{host}:{PORT}"
    assert sizes.pop("evaluator") == 1
    assert {role: len(hosts) for role, hosts in cluster.addresses.items()} == sizes


@pytest.mark.parametrize(
    ("name", "roles"),
    [(TFJOB_FILES[0], {"worker": 2}), (TFJOB_FILES[1], {"worker": 2, "ps": 1})],
)
def test_tf_config_as_the_operator_makes_it_is_read(name, roles):
    (document,) = read(name).values()
    replicas = document["spec"]["tfReplicaSpecs"]
    assert {role.lower(): spec["replicas"] for role, spec in replicas.items()} == {
        **roles,
        "evaluator": 1,
    }
    addresses = {
        role: [f"mnist-{role}-{index}.default.svc:{PORT}" for index in range(count)]
        for role, count in roles.items()
    }
    for role in (*roles, "evaluator"):
        task = {"type": role, "index": 0}
        text = json.dumps({"cluster": addresses, "task": task, "environment": "cloud"})
        cluster = est.parse_tf_config(text)
        assert (cluster.task_type, cluster.is_chief) == (role, role == "worker")


@pytest.mark.parametrize("name", [*JOB_FILES, *TFJOB_FILES])
def test_everybody_speaks_of_the_same_port_and_pods(name):
    (policy,) = (document["spec"] for document in read("network-policy.yaml").values())
    ((rule),) = policy["ingress"]
    assert (policy["policyTypes"], rule["ports"]) == (
        ["Ingress"],
        [{"port": PORT, "protocol": "TCP"}],
    )
    selectors = [policy["podSelector"], rule["from"][0]["podSelector"]]
    if name in JOB_FILES:
        service = read(name)["Service", "mnist"]["spec"]
        assert (service["clusterIP"], service["ports"][0]["port"]) == ("None", PORT)
        selectors.append({"matchLabels": service["selector"]})
    (claim,) = (document["metadata"]["name"] for document in read("storage.yaml").values())
    for role, template in pod_templates(name).items():
        for selector in selectors:
            assert selector["matchLabels"].items() <= template["metadata"]["labels"].items()
        ports = [port["containerPort"] for port in container_of(template).get("ports", ())]
        assert ports == ([] if role == "evaluator" and name in JOB_FILES else [PORT])
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert volumes["model"]["persistentVolumeClaim"] == {"claimName": claim}


def test_all_pods_are_alike_but_for_their_task():
    """Grace, user, volumes and command are not forgotten in one of them."""
    seen = []
    for name in (*JOB_FILES, *TFJOB_FILES):
        for template in pod_templates(name).values():
            spec = {**template["spec"]}
            container = {**container_of(template)}
            for key in ("env", "ports", "resources", "args"):
                container.pop(key, None)
            for key in ("subdomain", "restartPolicy"):
                spec.pop(key, None)
            seen.append({**spec, "containers": [container]})
    assert len(seen) == 10
    assert all(one == seen[0] for one in seen)
    assert seen[0]["terminationGracePeriodSeconds"] == 120


@pytest.mark.parametrize("name", JOB_FILES)
def test_a_drained_node_costs_no_try(name):
    for job in jobs_of(name).values():
        (rule,) = job["spec"]["podFailurePolicy"]["rules"]
        condition = {"type": "DisruptionTarget", "status": "True"}
        assert rule == {"action": "Ignore", "onPodConditions": [condition]}
        # Kubernetes takes the policy only with this.
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize("name", TFJOB_FILES)
def test_the_operator_finds_its_container_and_ends_nobody(name):
    (document,) = read(name).values()
    assert document["spec"]["runPolicy"]["cleanPodPolicy"] == "None"
    for spec in document["spec"]["tfReplicaSpecs"].values():
        assert container_of(spec["template"])["name"] == "tensorflow"
        assert spec["restartPolicy"] == "OnFailure"


# --- The image -----------------------------------------------------------------------------------


def instructions():
    """The Dockerfile's instructions, as (name, rest)."""
    text = (FOLDER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def copied():
    """What the Dockerfile copies, as (path in the repository, path in the image)."""
    folder = ""
    for name, rest in instructions():
        if name == "WORKDIR":
            folder = rest
        elif name == "COPY":
            *sources, target = rest.split()
            for source in sources:
                path = os.path.join(folder, target)
                is_folder = target.endswith("/")
                yield source, os.path.join(path, source) if is_folder else path


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The files of the image, and how it starts the program."""
    root = tmp_path_factory.mktemp("image")
    ignored = shutil.ignore_patterns("__pycache__")
    for source, target in copied():
        path = root / os.path.normpath(target).lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, path, ignore=ignored)
        else:
            shutil.copy(ROOT / source, path)
    return root


def entry_point():
    (text,) = (rest for name, rest in instructions() if name == "ENTRYPOINT")
    return ast.literal_eval(text)


def test_only_what_is_copied_is_sent_to_the_builder():
    lines = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    assert lines[0] == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    assert allowed == {source for source, _ in copied()}


def test_the_first_process_passes_signals_on():
    assert entry_point() == ["tini", "--", "python", "run_mnist.py"]


@pytest.mark.slow
@pytest.mark.parametrize("names", list(zip(JOB_FILES, TFJOB_FILES, strict=True)))
def test_the_program_in_the_image_takes_the_arguments(image, names):
    templates = [each for name in names for each in pod_templates(name).values()]
    (arguments,) = {tuple(container_of(each)["args"]) for each in templates}
    finished = subprocess.run(
        [sys.executable, *entry_point()[3:], *arguments, "--only_check_args"],
        cwd=image / "app",
        env={**os.environ, "PYTHONPATH": str(image / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
