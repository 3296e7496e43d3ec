"""One object, against the schema of its kind."""

import functools

import kubernetes_validate
from cloudcoil.models.prometheus_operator import v1 as prometheus_operator

from tools import Refused, refuse_unless

# Read once, not for each object.
kubernetes_validate.utils.schema_contents = functools.cache(
    kubernetes_validate.utils.schema_contents
)
# The oldest that the chart takes, and the newest that the schemas know.
VERSIONS = ["1.25", kubernetes_validate.latest_version()]
# What of a RayCluster is used here, by the CRD of KubeRay 1.7. Its pods are judged as pods.
RAY_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
RAY_SPEC = {
    "rayVersion",
    "authOptions",
    "tlsOptions",
    "networkPolicy",
    "headGroupSpec",
    "workerGroupSpecs",
}


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
            raise Refused(
                f"{name_of(one)}: {'.'.join(map(str, e.path))}: {e.message} (Kubernetes {version})"
            ) from e
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
    refuse_unless(
        not unknown, f"{name_of(one)}: the Prometheus operator does not know {sorted(unknown)}"
    )


def paths(value, at=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield f"{at}.{key}"
            yield from paths(inner, f"{at}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, f"{at}[{number}]")


def policies(one):
    """The rules of `networkPolicy` are those of a NetworkPolicy."""
    policy = one["spec"].get("networkPolicy", {})
    refuse_unless(
        set(policy) <= {"mode", "head", "worker"}, f"{name_of(one)}: not known in {policy.keys()}"
    )
    for pods in ("head", "worker"):
        rules = policy.get(pods, {})
        refuse_unless(
            set(rules) <= {"ingressRules", "egressRules"}, f"{name_of(one)}: not known in {rules.keys()}"
        )
        kubernetes(
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": one["metadata"],
                "spec": {
                    "podSelector": {},
                    "ingress": rules.get("ingressRules", []),
                    "egress": rules.get("egressRules", []),
                },
            }
        )


def ray_cluster(one):
    spec = one["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    refuse_unless(set(spec) <= RAY_SPEC, f"{name_of(one)}: not known: {set(spec) - RAY_SPEC}")
    refuse_unless(
        spec["authOptions"] in ({"mode": "token"}, {"mode": "disabled"}),
        f"{name_of(one)}: {spec['authOptions']}",
    )
    policies(one)
    for group in groups:
        refuse_unless(
            set(group) <= RAY_GROUP, f"{name_of(one)}: not known: {set(group) - RAY_GROUP}"
        )
        values = group["rayStartParams"].values()
        refuse_unless(
            all(isinstance(v, str) for v in values),
            f"{name_of(one)}: rayStartParams are texts: {values}",
        )
        kubernetes(
            {
                "apiVersion": "v1",
                "kind": "PodTemplate",
                "metadata": one["metadata"],
                "template": group["template"],
            }
        )
