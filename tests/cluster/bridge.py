"""Standard input and output of this process as one TCP connection, made from inside a namespace.

    python bridge.py HOST PORT

With BRIDGE_RESETS in the environment the connection is reset when this process ends. Half-closes are kept in both directions, but with RAY_RELAY_CA_FILE in the environment, for TLS, where it is who is trusted.
Exit 7: no connection.
"""
import os
import select
import socket
import ssl
import struct
import sys
import threading

try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
except OSError as error:
    sys.stderr.write("%s\n" % error)
    sys.exit(7)
peer.settimeout(None)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
if "BRIDGE_RESETS" in os.environ:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def encrypted(trusted):
    tls = ssl.create_default_context(cafile=trusted).wrap_socket(peer, server_hostname=sys.argv[1])
    while True:
        ready = [tls] if tls.pending() else select.select([0, tls], [], [])[0]
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                return
            tls.sendall(data)
        if tls in ready:
            # The bytes may be TLS control messages only.
            tls.setblocking(False)
            try:
                data = tls.recv(65536)
            except ssl.SSLWantReadError:
                continue
            finally:
                tls.setblocking(True)
            if not data:
                return
            while data:
                data = data[os.write(1, data):]


if "RAY_RELAY_CA_FILE" in os.environ:
    encrypted(os.environ["RAY_RELAY_CA_FILE"])
    sys.exit(0)


def upwards():
    while True:
        data = os.read(0, 65536)
        if not data:
            break
        try:
            peer.sendall(data)
        except OSError:
            return
    try:
        peer.shutdown(socket.SHUT_WR)
    except OSError:
        pass


threading.Thread(target=upwards, daemon=True).start()
while True:
    try:
        data = peer.recv(65536)
    except OSError:
        break
    if not data:
        break
    while data:
        data = data[os.write(1, data):]
