"""Checks what stands in docker/ for people to install: the overlays and the chart, rendered as they
would be, against the schemas of Kubernetes; the alerts and the dashboard, against the metrics that
the relay has.

    bash .ci/run deployment

runs it with what it needs (requirements.txt, and promtool of Debian's package prometheus).
Without a cluster: nothing is applied, and nothing is asked of the network.
"""

import itertools
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from broken import refusals
from essence import same
from metrics import expressions, families, known, laid_out, without_variables
from schemas import name_of, valid
from together import together
from values import documented
from tools import (
    CHART,
    DOCKER,
    OVERLAYS,
    ROOT,
    Loader,
    Refused,
    bundled,
    objects,
    refuse_unless,
    run,
)

# An overlay, and the values with which the chart has to come to the same containers.
SAME = {
    "single": "single",
    "replicas-monitored": "replicas",
    "replicas-daemonset": "replicas-daemonset",
    "head-sidecar": "head-sidecar",
    "everywhere": "everywhere",
}
# Where the version stands beside Cargo.toml, and how.
VERSIONED = {
    "helm/ray-relay/Chart.yaml": (r"^version: (\S+)$", r"^appVersion: (\S+)$"),
    "Dockerfile": (r"^ARG VERSION=(\S+)$",),
    "kubernetes/base/relay.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/components/agents-in-pods/ray-cluster-patch.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/deny-all/ray-cluster.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/components/agents-daemonset/agents-daemonset.yaml": (r"image: ray-relay:(\S+)$",),
    "kubernetes/overlays/single/kustomization.yaml": (r"name: ray-relay,.* newTag: (\S+) }$",),
    "kubernetes/overlays/replicas-daemonset/kustomization.yaml": (
        r"name: ray-relay,.* newTag: (\S+) }$",
    ),
    "kubernetes/overlays/everywhere/kustomization.yaml": (
        r"name: ray-relay,.* newTag: (\S+) }$",
    ),
    "kubernetes/overlays/head-sidecar/kustomization.yaml": (
        r"name: ray-relay,.* newTag: (\S+) }$",
    ),
}


def versions():
    version = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M).group(1)
    for file, patterns in VERSIONED.items():
        for pattern in patterns:
            found = re.findall(pattern, (DOCKER / file).read_text(), re.M)
            refuse_unless(
                found == [version],
                f"docker/{file} has {found} where Cargo.toml has {version}: {pattern}",
            )


def image():
    """What the source includes from elsewhere has to reach the build of the image."""
    copied = (DOCKER / "Dockerfile").read_text()
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    for file in itertools.chain((ROOT / "src").rglob("*.rs"), (ROOT / "crates").rglob("*.rs")):
        for path in re.findall(r'include_(?:str|bytes)!\("(\.\./[^"]+)"\)', file.read_text()):
            wanted = (file.parent / path).resolve().relative_to(ROOT)
            of_tests = "tests" in (part.removesuffix(".rs") for part in file.parts)
            if wanted.parts[0] not in ("src", "crates") and not of_tests:
                refuse_unless(
                    # Itself, or its folder.
                    any(f"COPY {one} {one}\n" in copied and f"!{one}" in ignored for one in (wanted, *wanted.parents)),
                    f"{file.name} includes {wanted}, which the image's build does not get",
                )


def manifests(helm, kubectl):
    rendered = {}
    for overlay in sorted(OVERLAYS.iterdir()):
        rendered[f"overlay {overlay.name}"] = objects(run(kubectl, "kustomize", overlay))
    run(helm, "lint", "--strict", CHART)
    rendered["chart"] = objects(run(helm, "template", "ray-relay", CHART))
    for values in sorted((CHART / "ci").iterdir()):
        run(helm, "lint", "--strict", "--values", values, CHART)
        name = values.name.removesuffix("-values.yaml")
        rendered[f"chart {name}"] = objects(
            run(helm, "template", "ray-relay", CHART, "--values", values)
        )
    for file in sorted((DOCKER / "kubernetes/deny-all").iterdir()):
        for one in objects(file.read_text()):
            valid(one)
    for name, all_objects in rendered.items():
        try:
            for one in all_objects:
                valid(one)
            together(all_objects)
        except Refused as e:
            raise Refused(f"{name}: {e}") from e
        print(f"{name}: {len(all_objects)} objects")
    for overlay, values in SAME.items():
        names = f"overlay {overlay}", f"chart {values}"
        same(names, *(rendered[name] for name in names))
    return rendered


def side_by_side(helm, kubectl, folder):
    """Two relays that find all RayClusters, in two namespaces: what is in no namespace has two names, so that removing one
    relay takes nothing from the other."""
    all_of_them = []
    for namespace in ("team-a", "team-b"):
        overlay = folder / namespace
        overlay.mkdir()
        path = os.path.relpath(OVERLAYS / "everywhere", overlay.resolve())
        (overlay / "kustomization.yaml").write_text(
            yaml.safe_dump({"namespace": namespace, "resources": [path]})
        )
        rendered = objects(run(kubectl, "kustomize", overlay))
        for one in rendered:
            valid(one)
        together(rendered)
        all_of_them.append([name_of(one) for one in rendered if "namespace" not in one["metadata"]])
    for namespace, release in (("team-c", "ray-relay"), ("team-d", "ray-relay"), ("team-d", "other")):
        values = CHART / "ci/everywhere-values.yaml"
        rendered = objects(run(helm, "template", release, CHART, "-n", namespace, "--values", values))
        # The CustomResourceDefinition is made once, and kept.
        all_of_them.append([name_of(one) for one in rendered if one["kind"].startswith("ClusterRole")])
    refuse_unless(all(all_of_them), "a relay for all namespaces has nothing that is in no namespace")
    names = [name for names in all_of_them for name in names]
    shared = {name for name in names if names.count(name) > 1}
    refuse_unless(not shared, f"two relays share {shared}: removing one takes it from the other")


def rights_of_values(helm):
    """What the values leave out of the rights is not there."""

    def rules(*settings):
        words = [word for setting in settings for word in ("--set", setting)]
        values = CHART / "ci/everywhere-values.yaml"
        return objects(run(helm, "template", "ray-relay", CHART, "--values", values, *words))

    of_others = [one["kind"] for one in rules("rbac.create=false") if "Role" in one["kind"]]
    refuse_unless(not of_others, f"rbac.create=false makes {of_others}")
    secrets = [
        name_of(one)
        for one in rules("discovery.tokens=false")
        for rule in one.get("rules", [])
        if "secrets" in rule["resources"]
    ]
    refuse_unless(not secrets, f"discovery.tokens=false lets {secrets} read Secrets")
    wide = [
        name_of(one)
        for one in rules("discovery.namespaces={ml,serving}")
        if one["kind"].startswith("ClusterRole") and one["metadata"]["name"].endswith("discovery")
    ]
    refuse_unless(not wide, f"discovery.namespaces takes {wide}")


def observability(rendered, folder):
    metrics, values = families()
    rules = yaml.load((DOCKER / "observability/alerts.yaml").read_text(), Loader)
    dashboard = json.loads((DOCKER / "observability/dashboard.json").read_text())
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]] + list(
        expressions(dashboard)
    )
    for expression in asked:
        known(expression, metrics, values)
    laid_out(dashboard)
    for name in ("overlay single-monitored", "chart replicas"):
        (rule,) = [one for one in rendered[name] if one["kind"] == "PrometheusRule"]
        refuse_unless(
            rule["spec"] == rules, f"{name} has other alerts than docker/observability/alerts.yaml"
        )
    promtool = shutil.which("promtool")
    if promtool:
        run(promtool, "check", "rules", DOCKER / "observability/alerts.yaml")
        run(promtool, "test", "rules", DOCKER / "observability/alerts_test.yaml")
        # promtool reads expressions in rules alone, and no variables of Grafana's.
        recorded = [
            {"record": f"panel:{n}", "expr": without_variables(e)}
            for n, e in enumerate(expressions(dashboard))
        ]
        panels = folder / "panels.yaml"
        panels.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": recorded}]}))
        run(promtool, "check", "rules", panels)
    else:
        refuse_unless("CI" not in os.environ, "promtool is missing (Debian package prometheus)")
        print(
            "SKIPPED: the tests of the alerts, for promtool is missing (Debian package prometheus)"
        )
    print(f"{len(asked)} expressions of alerts and dashboard")


def main():
    with tempfile.TemporaryDirectory() as folder:
        try:
            versions()
            documented()
            image()
            helm, kubectl = bundled(Path(folder))
            rendered = manifests(helm, kubectl)
            side_by_side(helm, kubectl, Path(folder))
            rights_of_values(helm)
            observability(rendered, Path(folder))
            refusals(helm, rendered)
        except Refused as e:
            sys.exit(f"docker/check: {e}")


if __name__ == "__main__":
    main()
