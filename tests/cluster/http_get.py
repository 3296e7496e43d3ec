"""GET one URL from inside a namespace: the body on stdout, "status N" on stderr. Exit 7: no connection.

With RAY_RELAY_TOKEN in the environment the request carries it as its token, and with RAY_RELAY_CA_FILE that is whom it trusts.
"""
import os
import ssl
import sys
import urllib.error
import urllib.request

token, trusted = os.environ.get("RAY_RELAY_TOKEN"), os.environ.get("RAY_RELAY_CA_FILE")
headers = {"Authorization": "Bearer " + token} if token else {}
tls = ssl.create_default_context(cafile=trusted) if trusted else None
request = urllib.request.Request(sys.argv[1], headers=headers)
try:
    with urllib.request.urlopen(request, timeout=float(sys.argv[2]), context=tls) as answer:
        sys.stderr.write("status %d" % answer.status)
        sys.stdout.buffer.write(answer.read())
except urllib.error.HTTPError as error:
    sys.stderr.write("status %d" % error.code)
    sys.stdout.buffer.write(error.read())
except OSError as error:
    sys.stderr.write(str(error))
    sys.exit(7)
