"""Servers of the tests. Each says on standard output that it serves."""

import http.server
import selectors
import socket
import sys
import urllib.parse


def main():
    name, *arguments = sys.argv[1:]
    servers = {"http": serve_http, "counter": serve_counter, "dns": serve_names, "first": serve_first}
    servers[name](*arguments)


def serve_http(address, port):
    """Answers by its address, the path and the Host; /from by the client's address;
    /to?URL leads there."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path, _, query = self.path.partition("?")
            body = f"{address} {self.path} {self.headers['Host']}\n"
            if path == "/from":
                body = f"{self.client_address[0]}\n"
            self.send_response(302 if path == "/to" else 200)
            if path == "/to":
                self.send_header("Location", urllib.parse.unquote(query))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments):
            pass

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        request_queue_size = 1024

    server = Server((address, int(port)), Handler)
    print("serves", flush=True)
    server.serve_forever()


def serve_first(*endpoints):
    """Speaks first: says where it is, then a line back, and ends."""
    selector = selectors.DefaultSelector()
    for endpoint in endpoints:
        host, _, port = endpoint.rpartition(":")
        listener = socket.create_server((host, int(port)))
        selector.register(listener, selectors.EVENT_READ, endpoint)
    print("serves", flush=True)
    while True:
        for ready, _ in selector.select():
            connection, _ = ready.fileobj.accept()
            try:
                with connection, connection.makefile("rb") as lines:
                    connection.sendall(ready.data.encode() + b"\n")
                    connection.sendall(lines.readline())
            except ConnectionError:
                pass


def serve_names(address, name, leads_to):
    """A name server that knows one name, and its IPv4 address only (RFC 1035)."""
    known = b"".join(bytes([len(part)]) + part.encode() for part in name.split(".")) + b"\0"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        print("serves", flush=True)
        while True:
            query, sender = server.recvfrom(512)
            question = query[12 : query.index(0, 12) + 5]
            asked, kind = question[:-4].lower(), question[-4:-2]
            record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(leads_to)
            answers = [record] if asked == known and kind == b"\0\1" else []
            flags = b"\x81\x80" if asked == known else b"\x81\x83"
            counts = b"\0\1" + bytes([0, len(answers)]) + b"\0\0\0\0"
            server.sendto(query[:2] + flags + counts + question + b"".join(answers), sender)


def serve_counter(control, *endpoints):
    """Counts connections and bytes. A request for HTTP is answered, one for /to?URL by
    the way there; anything else is counted and ends the connection. At `control` it tells 'connections up down' of all
    endpoints since the last time, once no connection is left open."""
    selector = selectors.DefaultSelector()
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000
    counts = [0, 0, 0]
    asking = []
    open_connections = set()

    def listen(endpoint, accepts):
        host, _, port = endpoint.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host.strip("[]"), int(port)), family=family, backlog=4096)
        listener.setblocking(False)
        selector.register(listener, selectors.EVENT_READ, lambda: accepts(listener))
        return listener

    def accept(listener):
        while True:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            counts[0] += 1
            open_connections.add(connection)
            head = bytearray()
            selector.register(connection, selectors.EVENT_READ, lambda c=connection, h=head: read(c, h))

    def read(connection, head):
        try:
            received = connection.recv(65536)
        except ConnectionError:
            received = b""
        counts[1] += len(received)
        head += received
        if received and head.startswith(b"GET "):
            if head.endswith(b"\r\n\r\n"):
                said = leads_to(head) if head.startswith(b"GET /to?") else answer
                head.clear()
                connection.sendall(said)
                counts[2] += len(said)
            return
        open_connections.remove(connection)
        selector.unregister(connection)
        connection.close()

    def leads_to(head):
        url = urllib.parse.unquote(head.split()[1].decode().partition("?")[2])
        return f"HTTP/1.1 302 Found\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()

    def ask(listener):
        asking.append(listener.accept()[0])

    listeners = [listen(endpoint, accept) for endpoint in endpoints]
    listen(control, ask)
    print("serves", flush=True)
    while True:
        for key, _ in selector.select():
            key.data()
        for listener in listeners if asking else []:
            accept(listener)
        while asking and not open_connections:
            told = "{} {} {}\n".format(*counts).encode()
            counts[:] = [0, 0, 0]
            asking.pop().sendall(told)


main()
