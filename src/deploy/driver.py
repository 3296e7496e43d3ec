"""Keeps ray-relay's agents on the nodes of this Ray cluster. `ray-relay deploy` submits it; `ray-relay deploy --remove` ends it.

One actor a node, bound to that node, of which Ray takes care: it restarts the actor when it dies. The actor keeps one
process. What an agent must not show to others (its token) comes to it sealed for a key that the process itself made, and
is opened by nobody else: it is in no argument, file, log or object of Ray.

Each line of output that begins with MARK is JSON for `ray-relay deploy --status`.
"""
import collections
import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
import uuid

import ray
from ray.experimental.internal_kv import _internal_kv_del, _internal_kv_get
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

MARK = "@ray-relay "
BINARY = "ray-relay"
# Seconds: the longest backoff between starts, and the uptime after which the backoff is reset.
LONGEST_PAUSE, GOOD = 60, 60
# Seconds for the graceful shutdown of one process, and of all.
GOODBYE, ALL_GOODBYES = 8, 15


def lack(machine):
    """The reason why this node cannot run the binary in the working directory, or None."""
    path = os.path.join(os.getcwd(), BINARY)
    if platform.machine() != machine:
        return f"its processor is {platform.machine()}, and the program that was deployed is for {machine}"
    try:
        # Ray before 2.10 unpacks without permissions.
        if not os.access(path, os.X_OK):
            os.chmod(path, 0o755)
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except PermissionError:
        return "the program may not be executed there: is the file system of Ray's temporary directory mounted noexec?"
    except FileNotFoundError:
        return "the program is not there, or the system misses the C library that it needs (glibc)"
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the program cannot be run: {error}"
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return f"the program does not run: {said[-1] if said else done.returncode}"
    return None


class RayRelay:
    """The actor on one node. Keeps one process running."""

    def __init__(self, arguments, machine):
        self._command = [os.path.join(os.getcwd(), BINARY), "deployed", "run", "--", *arguments]
        self._machine = machine
        self._instance, self._number = uuid.uuid4().hex, 0
        self._status = {"state": "starting"}
        self._changed = threading.Condition()
        self._sealed, self._child, self._stopping = {}, None, False
        # The kernel ends the process with its starting thread, so that thread lives as long as the actor.
        threading.Thread(target=self._keep, daemon=True).start()

    def status(self, seen):
        """Waits for a change after `seen`; returns its number and the state."""
        with self._changed:
            self._changed.wait_for(lambda: [self._instance, self._number] != seen, timeout=20)
            return [self._instance, self._number], dict(self._status)

    def give(self, key, sealed):
        """Gives the sealed secret to the process with this key."""
        with self._changed:
            self._sealed = {key: sealed}
            self._changed.notify_all()

    def stop(self):
        """Ends the process. Returns whether it has ended."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
            child = self._child
        if child is None:
            return True
        try:
            child.terminate()
            child.wait(GOODBYE)
        except subprocess.TimeoutExpired:
            child.kill()
            try:
                child.wait(2)
            except subprocess.TimeoutExpired:
                return False
        return True

    def _say(self, state, **more):
        with self._changed:
            self._number += 1
            self._status = dict(more, state=state)
            self._changed.notify_all()

    def _keep(self):
        pause = 1
        while not self._stopping:
            began = time.monotonic()
            try:
                why = lack(self._machine) or self._run()
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            if time.monotonic() - began > GOOD:
                pause = 1
            self._say("ended", why=why)
            with self._changed:
                self._changed.wait_for(lambda: self._stopping, timeout=pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    def _run(self):
        """Runs the process until it ends, and returns the reason."""
        log_end = os.fstat(2).st_size
        with self._changed:
            if self._stopping:
                return "stopped"
            child = self._child = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
            )
        key = child.stdout.readline().decode().strip()
        if key:
            self._say("asks", key=key)
            with self._changed:
                self._changed.wait_for(lambda: key in self._sealed or self._stopping)
                sealed = self._sealed.pop(key, None)
            if sealed:
                child.stdin.write(sealed.encode() + b"\n")
                self._say("running", pid=child.pid, since=time.time())
        child.stdin.close()
        code = child.wait()
        ended = f"it ended with {code}" if code >= 0 else f"it was ended by {signal.Signals(-code).name}"
        said = last_line(log_end)
        return f"{ended}: {said}" if said else ended


def last_line(start):
    """The last line of this process's standard error, a file of Ray's, from byte `start` on."""
    try:
        with open("/proc/self/fd/2", "rb") as log:
            log.seek(max(start, os.fstat(log.fileno()).st_size - 4096))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1][-300:] if lines else ""
    except OSError:
        return ""


class Keeper:
    """The process that keeps the secrets on the driver's side, and seals them for permitted processes."""

    def __init__(self):
        command = [os.path.join(os.getcwd(), BINARY), "deployed", "keep"]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.key = self._answer()

    def ask(self, line):
        self._child.stdin.write(line.encode() + b"\n")
        self._child.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self._child.stdout.readline().decode().strip()
        if not line:
            raise RuntimeError("the process that keeps the credential has ended")
        return line


def sentence(error):
    """The error of Ray in one line: the last one of a traceback."""
    text = str(error)
    if isinstance(error, ray.exceptions.RuntimeEnvSetupError):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        causes = [line for line in lines if line.split(":")[0].endswith(("Error", "Exception"))]
        return f"Ray cannot unpack the program there: {(causes or lines)[-1][:200]}"
    return f"Ray has no actor there: {' '.join(text.split())[:200]}"


class Place:
    """One expected process: the agent of a node, or the relay."""

    def __init__(self, role, node):
        self.role = role
        self.node, self.address, self.name = node["NodeID"], node["NodeManagerAddress"], node["NodeManagerHostname"]
        self.actor = self.asked = self.seen = None
        self.failures, self.begin_at, self.pause = 0, 0, 1
        self.starts, self.running = 0, None
        self.now, self.said, self.said_at = {"state": "starting"}, None, collections.deque(maxlen=10)

    def tell(self, state, **more):
        self.now = dict(more, state=state)

    def say(self, at_once=False):
        """Prints a changed state, ten times an hour at most, so that the log stays small."""
        restarts = max(0, self.starts - 1)
        about = {"role": self.role, "node": self.node, "address": self.address, "name": self.name, "restarts": restarts}
        row = dict(about, **self.now)
        often = len(self.said_at) == 10 and self.said_at[0] > time.monotonic() - 3600
        if row == self.said or (often and not at_once):
            return
        self.said = row
        self.said_at.append(time.monotonic())
        say(row)


def say(row):
    print(MARK + json.dumps(row), flush=True)


class Deployment:
    def __init__(self, plan, context):
        self.plan = plan
        self.dashboard = plan["node_ray_address"] or f"http://{context.dashboard_url}"
        self.gcs = ray.get_runtime_context().gcs_address
        self.keeper = Keeper()
        self.places = {}
        self.actors = ray.remote(RayRelay)
        self.relay_url = None

    def receive(self):
        """Prints the keeper's key, and waits for the secrets that the deployer seals for it."""
        say({"key": self.keeper.key})
        name = "gcs://ray_relay_sealed_" + hashlib.sha256(self.keeper.key.encode()).hexdigest()[:32]
        while not stopping:
            sealed = _internal_kv_get(name)
            if sealed:
                _internal_kv_del(name)
                self.keeper.ask(sealed.decode())
                return
            time.sleep(0.3)

    def look(self):
        """Updates the expected processes."""
        nodes = [node for node in ray.nodes() if node["Alive"]]
        wanted = {}
        for node in nodes:
            head = "node:__internal_head__" in node["Resources"]
            if head and self.plan["serve"] is not None:
                wanted["relay", node["NodeID"]] = node
                host = node["NodeManagerAddress"]
                self.relay_url = f"https://[{host}]" if ":" in host else f"https://{host}"
                self.relay_url += f":{self.plan['port']}"
            wanted["agent", node["NodeID"]] = node
        for key in [key for key in self.places if key not in wanted]:
            place = self.places.pop(key)
            place.tell("gone")
            place.say(at_once=True)
        for key, node in wanted.items():
            if key not in self.places:
                self.places[key] = Place(key[0], node)

    def arguments(self, place):
        if place.role == "relay":
            return ["serve", "--ray-address", self.dashboard, *self.plan["serve"]]
        relay = ["--relay", self.relay_url] if self.plan["serve"] is not None else []
        where = ["--ray-address", self.dashboard, "--gcs-address", self.gcs, "--node-id", place.node]
        return ["node", *relay, *self.plan["node"], *where]

    def begin(self, place):
        host = self.dashboard.split("://")[-1].rsplit(":", 1)[0]
        nodes = {node["NodeManagerAddress"]: node for node in ray.nodes()}
        if host in ("127.0.0.1", "localhost", "[::1]"):
            head = "node:__internal_head__" in nodes.get(place.address, {}).get("Resources", {})
            if not head:
                place.tell("ended", why="Ray's dashboard listens on the head's loopback only, where this node cannot ask it: "
                           "start the head with --dashboard-host=0.0.0.0, or name another way with --node-ray-address")
                place.begin_at = time.monotonic() + LONGEST_PAUSE
                return
        where = NodeAffinitySchedulingStrategy(place.node, soft=False)
        options = {"num_cpus": 0, "max_restarts": -1, "max_concurrency": 8, "scheduling_strategy": where}
        place.actor = self.actors.options(**options).remote(self.arguments(place), self.plan["machine"])
        place.failures = 0

    def hear(self, place):
        """Handles the actor's answer, or its failure."""
        asked, place.asked = place.asked, None
        try:
            place.seen, status = ray.get(asked)
        except Exception as error:
            place.seen = None
            place.failures += 1
            for_good = isinstance(error, (ray.exceptions.RuntimeEnvSetupError, ray.exceptions.ActorUnschedulableError))
            lost = for_good or place.failures > 5
            place.tell("ended" if lost else "restarting", why=sentence(error) if lost else None)
            place.begin_at = time.monotonic() + 1
            if for_good or place.failures > 30:
                self.give_up(place)
            return
        place.failures, place.pause = 0, 1
        if status["state"] == "asks":
            sealed = self.keeper.ask(f"{place.role} {status['key']}")
            place.actor.give.remote(status["key"], sealed)
            status = {"state": "starting"}
        if status["state"] == "running":
            run = (place.seen[0], status["pid"], status["since"])
            if run != place.running:
                place.running = run
                place.starts += 1
        place.now = status

    def give_up(self, place):
        """Drops the actor, so that the next turn makes another."""
        ray.kill(place.actor)
        place.actor = None
        place.begin_at = time.monotonic() + place.pause
        place.pause = min(LONGEST_PAUSE, 2 * place.pause)

    def turn(self):
        now = time.monotonic()
        for place in self.places.values():
            if place.asked is None and now >= place.begin_at:
                if place.actor is None:
                    self.begin(place)
                if place.actor is not None:
                    place.asked = place.actor.status.remote(place.seen)
        asked = {place.asked: place for place in self.places.values() if place.asked is not None}
        if asked:
            ready, _ = ray.wait(list(asked), num_returns=1, timeout=1)
            if ready:
                # Other actors that have answered meanwhile.
                ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
            for one in ready:
                self.hear(asked[one])
        else:
            time.sleep(1)
        for place in self.places.values():
            place.say()

    def end(self):
        ends = {place.actor.stop.remote(): place for place in self.places.values() if place.actor is not None}
        if ends:
            ray.wait(list(ends), num_returns=len(ends), timeout=ALL_GOODBYES)
        left = []
        for end, place in ends.items():
            try:
                ended = ray.get(end, timeout=0)
            except Exception:
                ended = False
            if not ended:
                left.append(place.node)
            place.tell("stopped")
            place.say(at_once=True)
            ray.kill(place.actor)
        say({"ended": len(ends) - len(left), "left": left})


stopping = False


def stop(*_):
    global stopping
    stopping = True


def main():
    plan = json.loads(sys.argv[1])
    # The output of agents stays in their actors' logs.
    context = ray.init(log_to_driver=False)
    signal.signal(signal.SIGTERM, stop)
    missing = lack(plan["machine"])
    if missing:
        say({"fatal": f"on the node that the job runs on, {missing}"})
        return 1
    deployment = Deployment(plan, context)
    deployment.receive()
    looked = -10
    while not stopping:
        if time.monotonic() - looked > 1:
            deployment.look()
            looked = time.monotonic()
        deployment.turn()
    deployment.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
