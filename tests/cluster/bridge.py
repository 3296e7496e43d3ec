"""Standard input and output of this process as one TCP connection, made from inside a namespace.

    python bridge.py HOST PORT

Half-closes are kept in both directions. Exit 7: no connection.
"""
import os
import socket
import sys
import threading

try:
    peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
except OSError as error:
    sys.stderr.write("%s\n" % error)
    sys.exit(7)
peer.settimeout(None)
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


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
