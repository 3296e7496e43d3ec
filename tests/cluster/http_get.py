"""GET one URL from inside a namespace: the body on stdout, "status N" on stderr. Exit 7: no connection.

With BEARER in the environment the request carries it as its token.
"""
import os
import sys
import urllib.error
import urllib.request

headers = {"Authorization": "Bearer " + os.environ["BEARER"]} if "BEARER" in os.environ else {}
request = urllib.request.Request(sys.argv[1], headers=headers)
try:
    with urllib.request.urlopen(request, timeout=float(sys.argv[2])) as answer:
        sys.stderr.write("status %d" % answer.status)
        sys.stdout.buffer.write(answer.read())
except urllib.error.HTTPError as error:
    sys.stderr.write("status %d" % error.code)
    sys.stdout.buffer.write(error.read())
except OSError as error:
    sys.stderr.write(str(error))
    sys.exit(7)
