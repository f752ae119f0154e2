"""A replica set of two MongoDB servers that say who they are: mongo.py NAME=ADDRESS NAME=ADDRESS

The first is the primary. They know the handshake, ping, and hello with the answering
member's own name.
"""

import socket
import struct
import sys
import threading

import bson

OP_REPLY, OP_QUERY, OP_MSG = 1, 2004, 2013


def main():
    members = [member.split("=") for member in sys.argv[1:]]
    names = [name for name, _ in members]
    for name, address in members:
        host, _, port = address.rpartition(":")
        listener = socket.create_server((host, int(port)))
        threading.Thread(target=accept, args=(listener, name, names), daemon=True).start()
    print("serves", flush=True)
    threading.Event().wait()


def accept(listener, name, names):
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection, name, names), daemon=True).start()


def serve(connection, name, names):
    with connection, connection.makefile("rb") as messages:
        while head := messages.read(16):
            length, number, _, kind = struct.unpack("<iiii", head)
            messages.read(length - 16)
            answer = bson.encode(hello(name, names))
            if kind == OP_QUERY:
                kind, body = OP_REPLY, struct.pack("<iqii", 8, 0, 0, 1) + answer
            else:
                body = struct.pack("<ib", 0, 0) + answer
            connection.sendall(struct.pack("<iiii", 16 + len(body), 0, number, kind) + body)


def hello(name, names):
    primary = name == names[0]
    return {
        "ok": 1, "ismaster": primary, "secondary": not primary, "me": name, "hosts": names,
        "primary": names[0], "setName": "rs", "setVersion": 1, "minWireVersion": 0,
        "maxWireVersion": 9, "maxBsonObjectSize": 1 << 24, "maxMessageSizeBytes": 48000000,
        "maxWriteBatchSize": 100000,
    }


main()
