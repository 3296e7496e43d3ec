"""A stand-in for systemd's descriptor store: runs the command of its arguments, keeps the descriptors that it sends with
FDSTORE=1, and starts it again with them when it was killed. The pid of the command is in the file PID_FILE.
See sd_notify(3) and sd_listen_fds(3)."""
import array
import ctypes
import os
import signal
import socket
import sys
import threading

FIRST = 3
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind("\0ray-relay-test-%d" % os.getpid())
name = "@" + notify.getsockname()[1:].decode()
stored = []  # (name, descriptor), in the order in which they came
changed = threading.Lock()


def keep():
    while True:
        text, ancillary, _, _ = notify.recvmsg(4096, socket.CMSG_SPACE(16 * 4))
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            descriptors.frombytes(data)
        words = dict(line.split("=", 1) for line in text.decode().splitlines())
        with changed:
            if words.get("FDSTORE") == "1":
                stored.extend((words["FDNAME"], descriptor) for descriptor in descriptors)
            elif words.get("FDSTOREREMOVE") == "1":
                for entry in [entry for entry in stored if entry[0] == words["FDNAME"]]:
                    stored.remove(entry)
                    os.close(entry[1])


def start():
    with changed:
        given = list(stored)
        pid = os.fork()
    if pid:
        return pid
    # It ends with this process in any case: PR_SET_PDEATHSIG.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    high = [os.dup2(descriptor, 500 + n) for n, (_, descriptor) in enumerate(given)]
    for n, descriptor in enumerate(high):
        os.dup2(descriptor, FIRST + n, inheritable=True)
    os.closerange(FIRST + len(given), 1024)
    environment = dict(os.environ, NOTIFY_SOCKET=name, FDSTORE="64")
    if given:
        environment.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(given)),
                           LISTEN_FDNAMES=":".join(name for name, _ in given))
    os.execvpe(sys.argv[1], sys.argv[1:], environment)


threading.Thread(target=keep, daemon=True).start()
while True:
    child = start()
    with open(os.environ["PID_FILE"] + ".new", "w") as file:
        file.write(str(child))
    os.rename(os.environ["PID_FILE"] + ".new", os.environ["PID_FILE"])
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
