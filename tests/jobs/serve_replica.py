"""A Serve replica at a breakpoint, reached by a request over HTTP. RESULT "hello ray"."""
import threading
import urllib.request

import harness
from ray import serve


@serve.deployment
class Echo:
    async def __call__(self, request):
        name = request.query_params["name"]
        breakpoint()
        return "hello " + name


harness.connect()
serve.start(http_options={"host": "127.0.0.1", "port": 18000})
serve.run(Echo.bind(), name="app1", route_prefix="/echo")
harness.ready()
answer = []


def ask():
    with urllib.request.urlopen("http://127.0.0.1:18000/echo?name=ray", timeout=120) as reply:
        answer.append(reply.read().decode())


thread = threading.Thread(target=ask)
thread.start()
thread.join()
harness.result(answer[0])
serve.shutdown()
