"""The chart's README has a table of its values, made from values.yaml and its comments.

    python docker/check/values.py --write

writes it anew; the check compares.
"""

import json
import sys

import yaml

from tools import CHART, refuse_unless

BEGIN, END = "<!-- values -->\n", "<!-- end of values -->\n"
README = CHART / "README.md"


def rows(text):
    """Path, default and comment of each value: of an empty one, a scalar, or a mapping on one line."""
    path, comment = [], []
    for line in text.splitlines():
        bare = line.strip()
        if not bare:
            comment = []
        elif bare.startswith("#"):
            comment.append(bare.removeprefix("#").strip())
        elif not bare.startswith("- "):
            depth = (len(line) - len(line.lstrip())) // 2
            key, _, default = bare.partition(":")
            path[depth:] = [(key, comment)]
            if default.strip():
                # What stands above a group goes to the first of its values.
                own = [word for _, words in path for word in words]
                path = [(key, []) for key, _ in path]
                yield ".".join(name for name, _ in path), shown(default.strip()), " ".join(own)
            comment = []


def shown(default):
    return json.dumps(yaml.safe_load(default))


def table():
    lines = ["| value | default | |", "|---|---|---|"]
    for path, default, comment in rows((CHART / "values.yaml").read_text()):
        lines.append(f"| `{path}` | `{default}` | {comment.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def parts():
    before, _, rest = README.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before, after


def documented():
    before, after = parts()
    wanted = before + BEGIN + table() + END + after
    refuse_unless(
        README.read_text() == wanted,
        "the README of the chart has other values than values.yaml: python docker/check/values.py --write",
    )


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    before, after = parts()
    README.write_text(before + BEGIN + table() + END + after)
