"""A webhook on loopback. Prints its port, and then each body that is posted, as a line."""
from http.server import BaseHTTPRequestHandler, HTTPServer


class Webhook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()
        print(body.decode().replace("\n", " "), flush=True)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Webhook)
print(server.server_port, flush=True)
server.serve_forever()
