"""What the ranks of `armed.py` run. A test reads the numbers of the lines from the comments behind them."""
import json
import os
import sys
import threading
import time

STEPS = [0]


def train(rank, end):
    while not os.path.exists(end):
        loss = 1.0 / (rank + 1)
        STEPS[0] += 1  # step
        time.sleep(0.02)


def report(rank, folder):
    path = os.path.join(folder, "%d.json" % rank)

    def write():
        while True:
            armed = any(sys.monitoring.get_tool(tool) == "ray-relay" for tool in range(6))
            with open(path + ".new", "w") as file:
                json.dump({"steps": STEPS[0], "armed": armed}, file)
            os.replace(path + ".new", path)
            time.sleep(0.05)

    threading.Thread(target=write, daemon=True).start()
