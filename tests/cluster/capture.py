"""Everything that passes one interface over TCP, for tests that look for what must not be there.

    capture.py INTERFACE DIRECTORY

prints "ready", listens until SIGTERM, and then writes the payloads of each connection and direction, one behind the
other, to DIRECTORY/sent (what this machine sent) and DIRECTORY/received. Segments are put in the order of their
sequence numbers, so that text cut in two by the network is found. Needs root (AF_PACKET).
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
    for name, outgoing in (("sent", True), ("received", False)):
        with open(directory / name, "wb") as out:
            for flow, segments in flows.items():
                if flow[0] == outgoing:
                    out.write(b"".join(segments[at] for at in sorted(segments)) + b"\n")
    sys.exit(0)


signal.signal(signal.SIGTERM, finish)
print("ready", flush=True)
while True:
    packet, (_, protocol, kind, *_) = listener.recvfrom(1 << 17)
    if protocol != 0x0800 or packet[9] != socket.IPPROTO_TCP:
        continue
    head = (packet[0] & 15) * 4
    length = struct.unpack_from("!H", packet, 2)[0] or len(packet)
    ports, sequence = packet[head : head + 4], struct.unpack_from("!I", packet, head + 4)[0]
    payload = packet[head + (packet[head + 12] >> 4) * 4 : length]
    if payload:
        flows.setdefault((kind == OUTGOING, packet[12:20], ports), {})[sequence] = payload
