#!/usr/bin/env bash
# A real Ray cluster whose nodes live in namespaces of their own (network, pids, host name,
# /tmp/ray, $HOME), as pods do. Nothing is made in the default network namespace: the bridge has
# a namespace of its own, and every cable is a veth pair.
#
#     client ----link---- relay ----+
#                                   |  bridge (namespace <NS>-sw)
#                 head, w1, ... wN -+
#
# The client has one cable, to the relay, and the relay forwards no packets: the client can use
# nothing but what listens on the relay.
#
#   cluster.sh hold              bring it up, print "ready", and take it down when standard input
#                                ends: so it never outlives the process that holds the other end
#   cluster.sh down              take it down
#   cluster.sh kill-node NODE    lose a node at once, as when its machine loses power
#   cluster.sh start-node NODE   bring a lost node back
#   cluster.sh cut NODE          pull the cable of head, w1..wN or client
#   cluster.sh close             drop whatever comes in to a Ray node and is not Ray's own (needs nft):
#                                of what listens there, the ports below are left, and debuggers are not
#   cluster.sh mend NODE         plug it in again
#
# Settings, all required unless a default is given:
#   RAY_VENV  environment with ray[default] and debugpy     NS     prefix of the namespaces
#   STATE     directory for logs and each node's /tmp/ray   WORKERS  worker nodes (2)
#   HEAD_ARGS, WORKER_ARGS  further `ray start` options, split on blanks
# Any other RAY_* variable reaches the Ray processes.
#
# Each node has one custom resource of its own name, so resources={"w1": 0.001} pins work to w1.
# `ray stop` is never called, because it ends other clusters on the machine too.
set -euo pipefail

: "${RAY_VENV:?}" "${NS:?}" "${STATE:?}"
WORKERS=${WORKERS:-2}
WAIT=180
STORE=$((80 * 1024 * 1024))
NET=10.88.0 LINK=10.88.1
# Ray's own, below those that the kernel gives to whoever asks for none, as debuggers do.
GCS=6379 DASHBOARD=8265 WORKER_PORTS=20100-20999
RAY_PORTS="--node-manager-port=20001 --object-manager-port=20002 --dashboard-agent-grpc-port=20003
  --dashboard-agent-listen-port=20004 --runtime-env-agent-port=20005 --metrics-export-port=20006
  --min-worker-port=${WORKER_PORTS%-*} --max-worker-port=${WORKER_PORTS#*-}"
# What no test needs and takes a second of a core on each node: what copies workers' output to drivers (newer Rays can do
# without), and the autoscaler.
SPARED="--no-monitor"
grep -qs include-log-monitor "$RAY_VENV"/lib/python*/site-packages/ray/scripts/scripts.py && SPARED+=" --include-log-monitor=false"
OWN_PORTS="$GCS, $DASHBOARD, 20001-20006, $WORKER_PORTS"

die() { echo "cluster.sh: $*" >&2; exit 1; }
addr_of() {
  case $1 in
    head) echo "$NET.10" ;;
    relay) echo "$NET.200" ;;
    w*) echo "$NET.$((10 + ${1#w}))" ;;
  esac
}
ray_nodes() { echo head; local i; for ((i = 1; i <= WORKERS; i++)); do echo "w$i"; done; }
spaces() { ip netns list 2>/dev/null | awk -v p="$NS-" 'index($1, p) == 1 {print $1}'; }

# ---- network
space() {
  ip netns add "$NS-$1"
  ip -n "$NS-$1" link set lo up
}
plug() {
  ip -n "$NS-sw" link add "to-$1" type veth peer name eth0 netns "$NS-$1"
  ip -n "$NS-sw" link set "to-$1" master br0 up
  ip -n "$NS-$1" link set eth0 up
  ip -n "$NS-$1" addr add "$(addr_of "$1")/24" dev eth0
  # Nothing is ever sent there; with a default route Ray finds the node's own address.
  ip -n "$NS-$1" route add default via "$NET.1"
}
net_up() {
  local n
  space sw
  ip -n "$NS-sw" link add br0 type bridge
  ip -n "$NS-sw" link set br0 up
  for n in $(ray_nodes) relay; do space "$n"; plug "$n"; done
  space client
  ip -n "$NS-relay" link add link0 type veth peer name eth0 netns "$NS-client"
  ip -n "$NS-relay" link set link0 up
  ip -n "$NS-relay" addr add "$LINK.1/24" dev link0
  ip -n "$NS-client" link set eth0 up
  ip -n "$NS-client" addr add "$LINK.2/24" dev eth0
  ip netns exec "$NS-relay" sh -c 'echo 0 >/proc/sys/net/ipv4/ip_forward' 2>/dev/null || true
}
cable() {                        # cable NODE up|down
  case $1 in
    client) ip -n "$NS-relay" link set link0 "$2" ;;
    *) ip -n "$NS-sw" link set "to-$1" "$2" ;;
  esac
}
# What a node says to itself, by whatever address, comes in by lo. Connections of Ray's from before the rules are not known
# to them: answers on those come from its ports. Without ICMP there are no neighbours in IPv6.
close_node() {
  ip netns exec "$NS-$1" nft -f - <<RULES
table inet closed {
  chain incoming {
    type filter hook input priority filter; policy drop;
    iif lo accept
    ct state established,related accept
    meta l4proto ipv6-icmp accept
    tcp dport { $OWN_PORTS } accept
    tcp sport { $OWN_PORTS } tcp flags & (syn | ack) != syn accept
  }
}
RULES
}

# ---- nodes
# One small init process holds a node's namespaces, as a pod's pause container does: killing it
# ends the node. Its $HOME is its own because Ray may write a token there that switches later
# starts to token mode; its /proc is its own because Ray looks for other clusters there. It knows
# its own name, as a pod does, and that there is no name server: every process of Ray's asks for
# both, and would wait 6 s each time for an answer from a network that nobody is on.
node_init() {
  local dir="$STATE/$1" outer tries
  rm -rf "$dir/ray" "$dir/up"
  mkdir -p /tmp/ray "$dir/ray" "$dir/home"
  printf '127.0.0.1 localhost\n%s %s\n' "$(addr_of "$1")" "$1" >"$dir/hosts"
  echo "nameserver 127.0.0.1" >"$dir/resolv.conf"
  # shellcheck disable=SC2016
  ip netns exec "$NS-$1" unshare --pid --mount --uts --fork --kill-child --mount-proc \
    bash -c 'mount --bind "$1" /tmp/ray && echo "$2" >/proc/sys/kernel/hostname &&
             for file in hosts resolv.conf; do
               [ ! -e "/etc/$file" ] || mount --bind "$1/../$file" "/etc/$file" || exit 1
             done && echo ready >"$1/../up" || exit 1
             trap "exit 0" TERM; while :; do sleep 3600 & wait $!; done' \
    node-init "$dir/ray" "$1" >"$dir/init.log" 2>&1 </dev/null &
  outer=$!
  for ((tries = 0; tries < 200; tries++)); do
    [ -s "$dir/up" ] && break
    kill -0 $outer 2>/dev/null || break
    sleep 0.05
  done
  [ -s "$dir/up" ] || die "init of $1 failed: $(cat "$dir/init.log")"
  tr -d ' ' <"/proc/$outer/task/$outer/children" >"$dir/pid"
  disown $outer
}
# Ray runs its workers at niceness 15, so that whatever else a machine does starves them; and Serve kills a proxy that is
# not ready after 5 s and begins again, on a busy machine for good. For each job it starts as many workers as a node has
# processors, of which these tests need one or two.
in_node() {
  local node=$1 pid; shift
  pid=$(cat "$STATE/$node/pid")
  env -u RAY_ADDRESS -u RAY_VENV HOME="$STATE/$node/home" RAY_USAGE_STATS_ENABLED=0 \
    RAY_memory_monitor_refresh_ms="${RAY_memory_monitor_refresh_ms:-0}" \
    RAY_prestart_worker_first_driver="${RAY_prestart_worker_first_driver:-0}" \
    RAY_worker_niceness=0 RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S=120 \
    PATH="$RAY_VENV/bin:$PATH" \
    nsenter --target "$pid" --net --mount --uts --pid --wd=/ -- "$@"
}
# Ray gives up on a node that is not up after 30 s, which a busy machine explains.
start_ray() {
  local attempt
  for attempt in 1 2 3; do
    ray_start "$1" && return
    tail -20 "$STATE/$1.log" >&2
    echo "ray start on $1 failed (attempt $attempt of 3)" >&2
    kill -KILL "$(cat "$STATE/$1/pid")"
    node_init "$1"
  done
  return 1
}
ray_start() {
  local log="$STATE/$1.log"
  case $1 in
    # shellcheck disable=SC2086
    head) in_node head "$RAY_VENV/bin/ray" start --head --node-ip-address="$(addr_of head)" \
        --port=$GCS --dashboard-host=0.0.0.0 --dashboard-port=$DASHBOARD --include-dashboard=true \
        --num-cpus=4 --object-store-memory=$STORE --disable-usage-stats \
        --resources='{"head":1}' $RAY_PORTS $SPARED ${HEAD_ARGS:-} >"$log" 2>&1 </dev/null ;;
    # shellcheck disable=SC2086
    *) in_node "$1" "$RAY_VENV/bin/ray" start --address="$(addr_of head):$GCS" \
        --node-ip-address="$(addr_of "$1")" --num-cpus=4 --object-store-memory=$STORE \
        --disable-usage-stats --resources="{\"$1\":1}" $RAY_PORTS $SPARED ${WORKER_ARGS:-} \
        >"$log" 2>&1 </dev/null ;;
  esac
}
alive() {
  in_node head "$RAY_VENV/bin/python" - "$(addr_of head)" <<'PY' 2>/dev/null || echo 0
import json, os, sys, urllib.request
req = urllib.request.Request(f"http://{sys.argv[1]}:8265/api/v0/nodes?detail=1&limit=1000")
if os.environ.get("RAY_AUTH_TOKEN"):
    req.add_header("Authorization", "Bearer " + os.environ["RAY_AUTH_TOKEN"])
with urllib.request.urlopen(req, timeout=5) as r:
    rows = json.load(r)["data"]["result"]["result"]
print(sum(1 for n in rows if n["state"] == "ALIVE"))
PY
}
wait_alive() {
  local want=$1 end=$((SECONDS + WAIT)) got=0
  while [ $SECONDS -lt $end ]; do
    got=$(alive)
    [ "$got" -ge "$want" ] && return 0
    sleep 0.3
  done
  die "only $got of $want nodes alive after ${WAIT}s (logs: $STATE)"
}

# ---- verbs
up() {
  local n starts=()
  [ "$(id -u)" = 0 ] || die "needs root"
  mkdir -p "$STATE"
  net_up
  for n in $(ray_nodes); do node_init "$n"; done
  echo "namespaces are up, starting the head" >&2
  start_ray head
  echo "the head is up, starting $WORKERS worker node(s)" >&2
  for n in $(ray_nodes); do
    [ "$n" = head ] || { start_ray "$n" & starts+=($!); }
  done
  for n in "${starts[@]}"; do wait "$n"; done
  wait_alive $((WORKERS + 1))
}
pids() { local s; for s in $(spaces); do ip netns pids "$s" 2>/dev/null || true; done; }
# KILL at once: TERM would have Ray drain its nodes for half a minute.
down() {
  local s n left end=$((SECONDS + 15))
  # With its init goes everything in a node's pid namespace.
  for n in $(ray_nodes); do kill -KILL "$(cat "$STATE/$n/pid" 2>/dev/null)" 2>/dev/null || true; done
  while left=$(pids) && [ -n "$left" ] && [ $SECONDS -lt $end ]; do
    # shellcheck disable=SC2086
    kill -KILL $left 2>/dev/null || true
    sleep 0.1
  done
  [ -z "$left" ] || echo "cluster.sh: still there: $left" >&2
  for s in $(spaces); do ip netns del "$s" || true; done
  rm -rf "$STATE"
}
hold() {
  # Not ignored: an ignored signal would stay ignored in every Ray process.
  trap : INT TERM HUP
  trap down EXIT
  up
  echo ready
  cat >/dev/null || true
}

case ${1:-} in
  hold) hold ;;
  down) down ;;
  kill-node) kill -KILL "$(cat "$STATE/$2/pid")" ;;
  start-node) node_init "$2"; start_ray "$2" ;;
  cut) cable "$2" down ;;
  mend) cable "$2" up ;;
  close) for n in $(ray_nodes); do close_node "$n"; done ;;
  *) sed -n '2,/^set -euo/{/^set/!s/^# \{0,1\}//p}' "$0"; exit 2 ;;
esac
