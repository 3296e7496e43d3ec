"""What alerts and dashboard ask of Prometheus, against the metrics in the relay's source."""

import itertools
import re

from tools import ROOT, refuse_unless

SOURCE = ROOT / "crates/access/src"


def families():
    """The families in the relay's source, each with its labels; and all values of closed labels."""
    files = [SOURCE / "telemetry/metrics.rs", *(SOURCE / "telemetry/metrics").glob("*.rs")]
    source = "\n".join(file.read_text() for file in files)
    found = {}
    for kind, labels, name in re.findall(
        r'\b(\w+?)(?:\[([^\]]*)\])?\s*=\s*"((?:ray_relay|process)_\w+)"', source
    ):
        names = set(re.findall(r'"(\w+)"', labels))
        if kind.startswith("Histogram"):
            found |= {
                name + "_bucket": names | {"le"},
                name + "_sum": names,
                name + "_count": names,
            }
        else:
            found[name] = names
    values = set(re.findall(r'=\s*"(\w+)",', (SOURCE / "telemetry/labels.rs").read_text()))
    values |= set(
        re.search(r"STATES: \[&str; \d+\] = \[(.*?)\]", source).group(1).replace('"', "").split(", ")
    )
    refuse_unless(
        len(found) > 20 and len(values) > 40, "the metrics are not where they were: mend `families`"
    )
    return found, values


# What Prometheus adds to whatever it scrapes.
SCRAPED = {"job", "instance"}


def known(expression, metrics, values):
    used = set()
    for name, matchers in re.findall(
        r"\b((?:ray_relay|process)_\w+)(?:\{([^}]*)\})?", expression
    ):
        refuse_unless(name in metrics, f"no metric {name}: {expression}")
        used |= metrics[name]
        for label, operator, text in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', matchers):
            refuse_unless(
                label in metrics[name] | SCRAPED, f"{name} has no label {label}: {expression}"
            )
            if label not in SCRAPED | {"cluster", "le"} and "$" not in text:
                strange = set(text.split("|")) - values
                refuse_unless(not strange, f"no value {strange} of {label}: {expression}")
    for labels in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", expression):
        strange = {label.strip() for label in labels.split(",")} - used - SCRAPED
        refuse_unless(not strange, f"nothing there has a label {strange}: {expression}")
    refuse_unless(
        used or re.search(r"\b(ray_relay|process)_", expression),
        f"asks nothing of the relay: {expression}",
    )


def expressions(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"]
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(
                r"label_values\((\w+), (\w+)\)", variable["definition"]
            ).groups()
            yield f"group by ({label}) ({metric})"


def without_variables(expression):
    return (
        expression.replace("$__rate_interval", "1m")
        .replace("$instance", ".*")
        .replace("$cluster", ".*")
    )


def laid_out(dashboard):
    panels = dashboard["panels"]
    ids = [panel["id"] for panel in panels]
    refuse_unless(len(ids) == len(set(ids)), "two panels have one id")
    titles = [panel["title"] for panel in panels if panel["type"] != "row"]
    refuse_unless(len(titles) == len(set(titles)), "two panels have one title")
    taken = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = set(
            itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"]))
        )
        refuse_unless(
            at["x"] + at["w"] <= 24 and not cells & taken,
            f"{panel['title']} lies on another, or outside",
        )
        taken |= cells
