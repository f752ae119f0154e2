"""Serves a server of standard input and output over HTTP on loopback, for clients that know nothing else.

    http_bridge.py SERVER ARGUMENT…

The first line that it prints is its address. Each `initialize` starts a server of its own,
whose session the client then names; a request of 2026-07-28, which needs no session, has one
that all of them share. What servers say unasked isn't passed on. The end of standard input
ends it.
"""

import json
import queue
import subprocess
import sys
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TIMEOUT = 60


class Server:
    """A server, to which requests of several connections go."""

    def __init__(self):
        self.process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.lock = threading.Lock()
        self.waiting = {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            message = json.loads(line)
            with self.lock:
                asked = self.waiting.pop(message.get("id"), None)
            if asked and "method" not in message:
                number, answer = asked
                answer.put(dict(message, id=number))

    def send(self, message):
        """Answers a request; nothing for a notification."""
        answer = queue.Queue()
        with self.lock:
            if "id" in message:
                # Two connections may count alike.
                own = str(uuid.uuid4())
                self.waiting[own] = message["id"], answer
                message = dict(message, id=own)
            self.process.stdin.write(json.dumps(message).encode() + b"\n")
            self.process.stdin.flush()
        return answer.get(timeout=TIMEOUT) if "id" in message else None


servers = {}
lock = threading.Lock()


class Bridge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer(405)

    do_DELETE = do_GET

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        session = self.headers.get("mcp-session-id")
        begins = message.get("method") == "initialize"
        if begins:
            session = str(uuid.uuid4())
        with lock:
            server = servers.get(session)
            if not server and (begins or not session):
                server = servers[session] = Server()
        if not server:
            return self.answer(404)
        answer = server.send(message)
        self.answer(200 if answer else 202, answer, session if begins else None)

    def answer(self, status, message=None, session=None):
        body = json.dumps(message).encode() if message else b""
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        if message:
            self.send_header("content-type", "application/json")
        if session:
            self.send_header("mcp-session-id", session)
        self.end_headers()
        self.wfile.write(body)


bridge = ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
threading.Thread(target=bridge.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{bridge.server_port}/mcp", flush=True)
sys.stdin.read()
for server in servers.values():
    server.process.stdin.close()
for server in servers.values():
    server.process.wait()
