"""What objects that are applied together say of each other."""

import functools
import re

from schemas import name_of
from tools import ROOT, refuse_unless

# Secrets and ConfigMaps that people make, as the notes and the overlays tell them.
MADE_BEFOREHAND = re.compile(
    r"^(ray-relay|ray-relay-tls|ray-relay-ca|ray-relay-tickets|relay-\w+|train-token|ray)$"
)


def pods(all_objects):
    """Labels and spec of every pod that the objects come to."""
    for one in all_objects:
        if one["kind"] in ("Deployment", "DaemonSet"):
            template = one["spec"]["template"]
            yield template["metadata"]["labels"], template["spec"]
        elif one["kind"] == "RayCluster":
            labels = {"ray.io/cluster": one["metadata"]["name"]}
            yield {**labels, "ray.io/node-type": "head"}, one["spec"]["headGroupSpec"]["template"][
                "spec"
            ]
            for group in one["spec"]["workerGroupSpecs"]:
                yield {**labels, "ray.io/node-type": "worker"}, group["template"]["spec"]


def fits(selector, labels):
    return selector.items() <= labels.items()


def together(all_objects):
    keys = [(one["kind"], one["metadata"]["name"]) for one in all_objects]
    places = [(*key, one["metadata"].get("namespace", "")) for key, one in zip(keys, all_objects)]
    refuse_unless(len(places) == len(set(places)), f"one name twice: {sorted(places)}")
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
        refuse_unless(
            any(fits(wanted(), l) for l in labels), f"{name_of(one)} selects no pod: {wanted()}"
        )
    if one["kind"] == "ServiceMonitor":
        found = [
            s
            for s in all_objects
            if s["kind"] == "Service"
            and fits(spec["selector"]["matchLabels"], s["metadata"].get("labels", {}))
        ]
        refuse_unless(len(found) == 1, f"{name_of(one)} selects {len(found)} Services")
        ports = {port["name"] for port in found[0]["spec"]["ports"]}
        refuse_unless(
            spec["endpoints"][0]["port"] in ports, f"{name_of(one)}: no such port among {ports}"
        )
    if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        names = {(o["kind"], o["metadata"]["name"]) for o in all_objects} | {
            ("ClusterRole", "system:auth-delegator")
        }
        wanted = [(one["roleRef"]["kind"], one["roleRef"]["name"])]
        wanted += [(s["kind"], s["name"]) for s in one["subjects"] if s["kind"] == "ServiceAccount"]
        refuse_unless(
            set(wanted) <= names, f"{name_of(one)} names what is not there: {set(wanted) - names}"
        )


def refers(spec, keys):
    account = spec.get("serviceAccountName")
    refuse_unless(
        account in (None, "default") or ("ServiceAccount", account) in keys,
        f"no ServiceAccount {account}",
    )
    volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
    for volume in volumes.values():
        for kind, field, name in (
            ("Secret", "secret", "secretName"),
            ("ConfigMap", "configMap", "name"),
        ):
            if field in volume:
                there = volume[field][name]
                refuse_unless(
                    (kind, there) in keys or MADE_BEFOREHAND.match(there),
                    f"nobody makes the {kind} {there}",
                )
    used = {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", [])}
    refuse_unless(used >= set(volumes), f"no container mounts {set(volumes) - used}")
    for container in spec["containers"]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        refuse_unless(
            mounted <= set(volumes),
            f"{container['name']} mounts {mounted - set(volumes)}, which is no volume",
        )
        named = {port["name"] for port in container.get("ports", [])}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            port = container.get(probe, {}).get("httpGet", {}).get("port")
            refuse_unless(
                port is None or port in named, f"{container['name']}: {probe} asks a port {port}"
            )


def confined(container, spec):
    context = {**spec.get("securityContext", {}), **container["securityContext"]}
    refuse_unless(
        # The platform chooses the user where none is named.
        context.get("runAsUser", int(context.get("runAsNonRoot", False))) > 0
        and context["readOnlyRootFilesystem"]
        and not context["allowPrivilegeEscalation"]
        and context["capabilities"] == {"drop": ["ALL"]},
        f"{container['name']} may more than it needs: {context}",
    )
    # A pod of Ray's is Ray's own to confine; the relay's own container is, wherever it is.
    refuse_unless(
        container["name"] != "ray-relay"
        or context.get("runAsNonRoot")
        and context.get("seccompProfile") == {"type": "RuntimeDefault"},
        f"{container['name']} is not what Kubernetes calls restricted: {context}",
    )
    refuse_unless(
        "memory" in container["resources"]["limits"], f"{container['name']} has no limit of memory"
    )


@functools.cache
def variables():
    """The relay's keys, as they are called in its environment."""
    found, section = set(), ""
    for line in (ROOT / "config/example.toml").read_text().splitlines():
        if heading := re.match(r"\[+(\w+)\]+$", line):
            section = heading.group(1)
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            found.add(f"RAY_RELAY_{section}_{key.group(1)}".upper())
    return found


def configured(container):
    names = {entry["name"] for entry in container["env"] or []} - {"RAY_AUTH_TOKEN"}
    refuse_unless(
        names <= variables(), f"{container['name']}: the relay has no keys {names - variables()}"
    )
