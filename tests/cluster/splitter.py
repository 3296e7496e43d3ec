"""One address for several relays, from inside a namespace: each connection goes to the next of them that accepts.

    python splitter.py HOST:PORT TARGET:PORT...

Prints "ready" when it listens. Half-closes are kept in both directions.
"""
import socket
import sys
import threading


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def copy(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # The remaining peer is notified at once.
        for side in (source, target):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def split(client, targets):
    for target in targets:
        try:
            relay = socket.create_connection(target, timeout=5)
        except OSError:
            continue
        relay.settimeout(None)
        for pair in ((client, relay), (relay, client)):
            threading.Thread(target=copy, args=pair, daemon=True).start()
        return
    client.close()


targets = [address(text) for text in sys.argv[2:]]
listener = socket.create_server(address(sys.argv[1]))
print("ready", flush=True)
turn = 0
while True:
    client, _ = listener.accept()
    split(client, targets[turn:] + targets[:turn])
    turn = (turn + 1) % len(targets)
