"""What is broken is refused: a check that lets everything pass would pass as well."""

import copy

from essence import same
from metrics import families, known
from schemas import valid
from together import together
from tools import CHART, Refused, objects, run


def refusals(helm, rendered):
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
        "a field that does not exist": broken(
            "Deployment", lambda o: pod(o).update(serviceAcountName="x")
        ),
        "a number that is a text": broken("Deployment", lambda o: o["spec"].update(replicas="two")),
        "a pod of Ray with such a field": broken("RayCluster", lambda o: head(o).update(volume=[])),
        "a RayCluster with such a field": broken(
            "RayCluster", lambda o: o["spec"].update(headGroup={})
        ),
        "a ServiceMonitor with such a field": broken(
            "ServiceMonitor", lambda o: o["spec"]["endpoints"][0].update(pth="/")
        ),
        "a Service without pods": broken(
            "Service", lambda o: o["spec"].update(selector={"app": "other"})
        ),
        "a ServiceMonitor without a port": broken(
            "ServiceMonitor", lambda o: o["spec"]["endpoints"][0].update(port="web")
        ),
        "a volume that is not there": broken("Deployment", lambda o: pod(o)["volumes"].pop()),
        "a role that is not there": broken(
            "RoleBinding", lambda o: o["roleRef"].update(name="other")
        ),
        "a writable root": broken(
            "Deployment",
            lambda o: pod(o)["containers"][0]["securityContext"].update(
                readOnlyRootFilesystem=False
            ),
        ),
        "a key that the relay has not": broken(
            "Deployment",
            lambda o: pod(o)["containers"][0]["env"][-1].update(name="RAY_RELAY_TLS_CERT"),
        ),
        "a chart that lets others in": lambda: same(("a", "b"), replicas, rendered["chart bare"]),
        "a key that stands twice": lambda: objects("a: 1\na: 2\n"),
        "a value that does not exist": lambda: run(helm, "template", CHART, "--set", "replica=2"),
        "a secret among the values": lambda: run(helm, "template", CHART, "--set", "auth.token=x"),
        "a mount without a path": lambda: run(
            helm, "template", CHART, "--set", "extraVolumeMounts[0].name=x"
        ),
        "two replicas without agents": lambda: run(helm, "template", CHART, "--set", "replicas=2"),
        "agents of clusters that are found": lambda: run(
            helm, "template", CHART, "--set", "discovery.enabled=true", "--set", "agents.enabled=true"
        ),
        "nobody authenticated": lambda: run(
            helm, "template", CHART, "--set", "auth.existingSecret="
        ),
        "a metric that does not exist": lambda: known("ray_relay_sessions", metrics, values),
        "a label that does not exist": lambda: known(
            'ray_relay_sessions_total{state="x"}', metrics, values
        ),
        "a value that no label has": lambda: known(
            'ray_relay_sessions_total{outcome="fine"}', metrics, values
        ),
    }
    for what, judge in cases.items():
        try:
            judge()
        except Refused:
            continue
        raise Refused(f"passed, and should not: {what}")
    print(f"{len(cases)} broken ones refused")
