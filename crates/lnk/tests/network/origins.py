"""Origins that behave badly or unusually, and tell what came to them.

python3 -c … CONTROL (BEHAVIOUR ADDRESS:PORT)…  At CONTROL they tell, once no connection
is left open, of each connection since the last time: where it came in, the first 2,000
bytes of what came, how many bytes came and how many went.
"""

import hashlib
import json
import select
import socket
import sys
import threading

MEBIBYTE = b"\x55" * (1 << 20)


def main():
    control, *origins = sys.argv[1:]
    for behaviour, endpoint in zip(origins[::2], origins[1::2]):
        threading.Thread(target=accept, args=(endpoint, BEHAVIOURS[behaviour]), daemon=True).start()
        ready.acquire()
    listener = listen(control)
    print("serves", flush=True)
    while True:
        asking, _ = listener.accept()
        with changed:
            changed.wait_for(lambda: open_connections == 0)
            asking.sendall(json.dumps(told).encode() + b"\n")
            told.clear()
        asking.close()


changed = threading.Condition()
ready = threading.Semaphore(0)
told = []
open_connections = 0


def listen(endpoint):
    host, _, port = endpoint.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), int(port)), family=family)


def accept(endpoint, behave):
    global open_connections
    listener = listen(endpoint)
    ready.release()
    while True:
        connection, _ = listener.accept()
        with changed:
            open_connections += 1
        threading.Thread(target=serve, args=(endpoint, behave, connection), daemon=True).start()


def serve(endpoint, behave, connection):
    global open_connections
    peer = Peer(connection)
    try:
        behave(peer)
    except OSError as error:
        peer.got += f"<{error}>".encode()
    connection.close()
    with changed:
        open_connections -= 1
        told.append([endpoint, peer.got[:2000].decode("latin1"), len(peer.got), peer.went])
        changed.notify_all()


class Peer:
    def __init__(self, connection):
        self.connection = connection
        self.got = bytearray()
        self.taken = 0
        self.went = 0

    def send(self, data):
        self.went += len(data)
        self.connection.sendall(data)

    def half_close(self):
        self.connection.shutdown(socket.SHUT_WR)

    def more(self):
        received = self.connection.recv(1 << 18)
        self.got += received
        return received

    def take(self, end):
        taken = bytes(self.got[self.taken:end])
        self.taken = end
        return taken

    def bytes(self, length):
        while len(self.got) - self.taken < length:
            if not self.more():
                raise OSError("ended early")
        return self.take(self.taken + length)

    def line(self):
        while (end := self.got.find(b"\n", self.taken)) < 0:
            if not self.more():
                raise OSError("ended early")
        return self.take(end + 1).strip()

    def head(self):
        lines = []
        while line := self.line():
            lines.append(line.decode("latin1"))
        self.asked = lines[0].split()
        self.headers = dict(line.lower().split(": ", 1) for line in lines[1:])

    def body(self):
        if self.headers.get("transfer-encoding") != "chunked":
            return self.bytes(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.line(), 16):
            body += self.bytes(size)
            self.line()
        while self.line():
            pass
        return body

    def to_end(self):
        while self.more():
            pass

    def answer(self, body, status="200 OK"):
        body = body.encode()
        self.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def answers(peer):
    """Answers with what was asked, and goes on listening."""
    peer.head()
    body = peer.body()
    peer.answer(f"{peer.connection.getsockname()[0]} {peer.asked[0]} {peer.asked[1]} {len(body)}\n")
    peer.to_end()


def uploaded(peer):
    body = peer.body()
    peer.answer(f"{len(body)} {hashlib.sha256(body).hexdigest()}\n")
    peer.to_end()


def continues(peer):
    """Takes an upload after it said that it would."""
    peer.head()
    if peer.headers.get("expect") == "100-continue":
        peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    uploaded(peer)


def silent(peer):
    """Takes an upload without a word before."""
    peer.head()
    uploaded(peer)


def denies(peer):
    """Answers before it reads a byte, reads none, and stays until the other leaves."""
    peer.answer("who are you?\n", "401 Unauthorized")
    left = select.poll()
    left.register(peer.connection, select.POLLRDHUP)
    left.poll()


def denies_and_leaves(peer):
    """As denies, and leaves the request unread, so that the connection breaks."""
    came = select.poll()
    came.register(peer.connection, select.POLLIN)
    came.poll()
    peer.answer("who are you?\n", "401 Unauthorized")


def trailers(peer):
    """Answers in chunks with a trailer."""
    peer.head()
    body = peer.body().decode()
    answer = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\n"
    peer.send(answer.encode() + b"3\r\n, b\r\n0\r\nX-Sum: 7\r\n\r\n")
    peer.to_end()


def bodiless(peer):
    """Answers without a body where HTTP has none, though the head may tell a length."""
    peer.head()
    answer = {
        "/204": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/304": b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        "/": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
    }[peer.asked[1]]
    peer.send(answer)
    if peer.asked[0] != "HEAD" and peer.asked[1] == "/":
        peer.send(b"hello")
    peer.to_end()


def old(peer):
    """Speaks HTTP/1.0: the answer ends with the connection."""
    peer.head()
    peer.send(b"HTTP/1.0 200 OK\r\n\r\n" + MEBIBYTE)


def downloads(peer):
    """Takes all that comes; then a MiB is the answer."""
    peer.to_end()
    peer.send(MEBIBYTE)


def leaves_first(peer):
    """Has said all before it hears a word, and listens on."""
    peer.send(b"bye")
    peer.half_close()
    peer.to_end()


BEHAVIOURS = {
    behaviour.__name__: behaviour
    for behaviour in [answers, continues, silent, denies, denies_and_leaves, trailers, bodiless,
                      old, downloads, leaves_first]
}

main()
