"""What an installation comes to, whoever rendered it: chart and overlays are to be the same."""

import difflib
import itertools
import json

from together import pods
from tools import refuse_unless


def same(names, one, other):
    """Refuses two installations that differ in what the relay and its agents are told, in who
    reaches whom, or in who may do what."""
    for part in containers, flows, rights:
        texts = [sorted(text(entry) for entry in part(objects)) for objects in (one, other)]
        differing = difflib.unified_diff(*texts, *names, lineterm="", n=0)
        refuse_unless(texts[0] == texts[1], "\n".join(differing))


def containers(all_objects):
    for _, spec in pods(all_objects):
        for container in spec["containers"]:
            if container["name"].startswith("ray-relay"):
                yield told(container, spec)


def told(container, spec):
    kept = {key: container[key] for key in ("name", "image", "args", "resources")}
    kept["env"] = sorted(container["env"], key=lambda entry: entry["name"])
    kept["mounts"] = sorted(mount["mountPath"] for mount in container.get("volumeMounts", []))
    probes = {name: value for name, value in container.items() if name.endswith("Probe")}
    for name, probe in probes.items():
        kept[name] = {**probe, "httpGet": {"scheme": "HTTP", **probe["httpGet"]}}
    kept["security"] = {**spec.get("securityContext", {}), **container["securityContext"]}
    # Of the pod here, and of the container there.
    for detail in ("seccompProfile", "fsGroup", "runAsNonRoot"):
        kept["security"].pop(detail, None)
    for detail in (
        "automountServiceAccountToken",
        "shareProcessNamespace",
        "hostPID",
        "hostNetwork",
    ):
        kept[detail] = spec.get(detail)
    return kept


def flows(all_objects):
    """Each peer with each port that policies allow; they add up, however many there are."""
    found = set()
    for one in all_objects:
        if one["kind"] == "NetworkPolicy":
            spec = one["spec"]
            of = plain(spec["podSelector"])
            for direction, peers in (("ingress", "from"), ("egress", "to")):
                for rule in spec.get(direction, []):
                    for peer, port in itertools.product(
                        rule.get(peers, [None]), rule.get("ports", [None])
                    ):
                        found.add((of, direction, plain(peer), plain(port)))
    return found


def plain(value):
    """As text, without the label by which the chart tells releases apart."""
    return text(json.loads(json.dumps(value), object_hook=without_release))


def without_release(labels):
    return {k: v for k, v in labels.items() if k != "app.kubernetes.io/instance"}


def text(value):
    return json.dumps(value, sort_keys=True)


def rights(all_objects):
    return [one["rules"] for one in all_objects if one["kind"] in ("Role", "ClusterRole")]
