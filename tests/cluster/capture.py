"""Captures all TCP traffic of one interface, for tests that search it for forbidden content.

    capture.py INTERFACE DIRECTORY

prints "ready", listens until SIGTERM, and then writes what each direction of a connection carried to a file of its own in
DIRECTORY, "sent FROM PORT TO PORT" (what this machine sent) or "received FROM PORT TO PORT". Segments are put in the
order of their sequence numbers, so that text cut in two by the network is found. Needs root (AF_PACKET).
"""

import pathlib
import signal
import socket
import struct
import sys

ETH_P_ALL = 3
OUTGOING = socket.PACKET_OUTGOING

interface, directory = sys.argv[1], pathlib.Path(sys.argv[2])
listener = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 26)
listener.bind((interface, 0))
flows: dict[tuple, dict[int, bytes]] = {}


def finish(*_):
    for (way, source, port, target, to), segments in flows.items():
        first = next(iter(segments))
        # Sequence numbers start anywhere and wrap around.
        order = sorted(segments, key=lambda at: (at - first + (1 << 31)) % (1 << 32))
        name = f"{way} {source} {port} {target} {to}"
        (directory / name).write_bytes(b"".join(segments[at] for at in order))
    sys.exit(0)


signal.signal(signal.SIGTERM, finish)
print("ready", flush=True)
while True:
    packet, (_, protocol, kind, *_) = listener.recvfrom(1 << 17)
    if protocol == 0x0800 and packet[9] == socket.IPPROTO_TCP:
        head, end = (packet[0] & 15) * 4, struct.unpack_from("!H", packet, 2)[0] or len(packet)
        source, target = (socket.inet_ntop(socket.AF_INET, packet[at : at + 4]) for at in (12, 16))
    elif protocol == 0x86DD and packet[6] == socket.IPPROTO_TCP:
        head, end = 40, struct.unpack_from("!H", packet, 4)[0] + 40
        source, target = (socket.inet_ntop(socket.AF_INET6, packet[at : at + 16]) for at in (8, 24))
    else:
        continue
    port, to, sequence = struct.unpack_from("!HHI", packet, head)
    payload = packet[head + (packet[head + 12] >> 4) * 4 : end]
    if payload:
        flow = ("sent" if kind == OUTGOING else "received", source, port, target, to)
        flows.setdefault(flow, {})[sequence] = payload
