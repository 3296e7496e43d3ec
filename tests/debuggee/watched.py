"""Stops in `work` again and again, and leaves a file for each piece of injected code that runs.

Takes a directory for those marks, and prints the port on which its debugger listens. Marks that begin with `own-` are
left by objects when somebody looks at them; all others by code that a client brought.
"""

import builtins
import collections
import contextvars
import enum
import os
import sys
import threading
import time

import debugpy

MARKS = sys.argv[1]


def mark(name):
    with open(os.path.join(MARKS, name), "a") as file:
        file.write("x")
    return True


# Reachable from every evaluation, including those in the debugger's own modules.
builtins.mark = mark


class Lazy:
    def __init__(self):
        self.plain = 1

    @property
    def computed(self):
        mark("own-property")
        return 2

    def __getattr__(self, name):
        mark("own-getattr")
        raise AttributeError(name)

    def __dir__(self):
        mark("own-dir")
        return [*object.__dir__(self), "computed"]

    def __repr__(self):
        mark("own-repr")
        return "Lazy()"

    def __str__(self):
        mark("own-str")
        return "Lazy()"

    def __len__(self):
        mark("own-len")
        return 1

    def __iter__(self):
        mark("own-iter")
        return iter([1])

    def __eq__(self, other):
        mark("own-eq")
        return self is other

    def __hash__(self):
        mark("own-hash")
        return 1

    def __bool__(self):
        mark("own-bool")
        return True


class Plain:
    @property
    def computed(self):
        mark("own-plain-property")
        return 2


class Mapping(dict):
    def items(self):
        mark("own-dict-items")
        return super().items()

    def __iter__(self):
        mark("own-dict-iter")
        return super().__iter__()

    def __getitem__(self, key):
        mark("own-dict-getitem")
        return super().__getitem__(key)


class Listing(list):
    def __iter__(self):
        mark("own-list-iter")
        return super().__iter__()

    def __getitem__(self, index):
        mark("own-list-getitem")
        return super().__getitem__(index)


class Completed:
    """Never inspected, so that only an expression reaches the property."""

    @property
    def attribute(self):
        mark("completions")
        return Completed()


# Secrets under harmless names: all of them contain "plantd".
Cred = collections.namedtuple("Cred", "user password")
MODE = contextvars.ContextVar("db_password", default="plantd-context")


class Keys(enum.Enum):
    USER = "ada"
    API_KEY = "plantd-member"


class Planted:
    """Opened by a debugger one level at a time."""

    def __init__(self):
        self.ordered = collections.OrderedDict([("user", "ada"), ("password", "plantd-ordered")])
        self.pairs = [("user", "ada"), ("password", "plantd-pairs")]
        self.lists = [["user", "ada"], ["api_key", ["plantd-lists"]]]
        self.items = {"password": "plantd-items"}.items()
        self.composed = {("db", "password"): "plantd-composed"}
        self.said = {"value": "plantd-said", "name": "password"}
        self.tuple = Cred("ada", "plantd-tuple")
        self.tuples = [Cred("ada", "plantd-tuples")]
        self.member = Keys.API_KEY
        self.members = {"k": Keys.API_KEY}
        self.context = MODE
        self.contexts = [MODE]
        self.before = MODE.set("plantd-set")
        self.again = MODE.set("ada")
        self.argv = ["train.py", "--password", "plantd-argv", "--epochs", "3"]
        self.joined = ["train.py", "--password=plantd-joined"]
        self.mysql = ["mysql", "-uada", "-pplantd-mysql"]
        self.line = "train.py --password plantd-line --epochs 3"
        self.curl = "curl -u ada:plantd-curl https://x"
        self.yaml = "db:\n  password: |\n    plantd-yaml\n    plantd-more\n  port: 3\n"
        self.sequence = "password:\n  - plantd-first\n  - plantd-second\nport: 3\n"
        self.env = "- name: DB_PASSWORD\n  value: plantd-env\n"
        self.dotenv = "A=1\nOPENAI_KEY=plantd-dotenv\n"
        self.request = "GET / HTTP/1.1\r\nauthorization: Basic plantd-request\r\n"
        self.json = '{"a": "{\\"password\\": \\"plantd-json\\"}"}'
        self.token_bytes = b"plantd-bytes"
        self.token_list = ["plantd-list"]
        self.session_cookie = "plantd-cookie"


completed = Completed()
_protected = "a global in a group"


def work(turn):
    total = turn * 2
    lazy, plain, mapping, listing = Lazy(), Plain(), Mapping(a=1), Listing([1, 2])
    settings = {"user": "ada", "password": "hunter2", "nested": [("api_key", "AKIAIOSFODNN7EXAMPLE")]}
    password = {"current": "hunter2"}
    environment = dict(os.environ)
    planted = Planted()
    debugpy.breakpoint()
    total += 1  # HERE
    total += 1
    return total, lazy, plain, mapping, listing, settings, password, environment, planted


def main():
    host, port = debugpy.listen(("127.0.0.1", 0))
    print(port, flush=True)
    debugpy.wait_for_client()
    # An idle thread, so that only the debugger wakes it.
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    for turn in range(1_000_000):
        work(turn)
        print(f"turn {turn} password=hunter2", flush=True)
        with open(os.path.join(MARKS, "own-turns"), "w") as file:
            file.write(str(turn))
        time.sleep(0.02)


main()
