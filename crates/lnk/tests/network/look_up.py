"""Asks the sandbox's DNS: look_up.py udp|tcp [@BYTES] TYPE NAME [TYPE NAME]…

A line each: the name, its rcode, TC where the answer is cut, and what the answers say.
With @BYTES the question says that so many are taken by UDP (EDNS).
"""

import socket
import struct
import sys

TYPES = {"A": 1, "CNAME": 5, "PTR": 12, "TXT": 16, "AAAA": 28, "SRV": 33, "ANY": 255}
SERVER = ("127.0.0.1", 53)


def main():
    transport, *words = sys.argv[1:]
    edns = int(words.pop(0)[1:]) if words[0].startswith("@") else None
    for kind, name in zip(words[::2], words[1::2]):
        print(name, *ask(transport, question(name, TYPES.get(kind) or int(kind), edns)), flush=True)


def question(name, kind, edns=None):
    labels = [label.encode("latin1") for label in name.split(".")]
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    head = struct.pack("!HHHHHH", kind ^ 0x5A5A, 0x0100, 1, 0, 0, 0 if edns is None else 1)
    opt = b"" if edns is None else b"\0" + struct.pack("!HHIH", 41, edns, 0, 0)
    return head + wire + struct.pack("!HH", kind, 1) + opt


def ask(transport, message):
    answer = by_udp(message) if transport == "udp" else by_tcp(message)
    assert answer[:2] == message[:2], answer
    flags, questions, answers = struct.unpack_from("!HHH", answer, 2)
    assert flags & 0x8000 and questions == 1, answer
    yield flags & 15
    if flags & 0x0200:
        yield "TC"
    at = skip_name(answer, 12) + 4
    for _ in range(answers):
        at = skip_name(answer, at)
        kind, _, _, length = struct.unpack_from("!HHIH", answer, at)
        yield said(kind, answer[at + 10:at + 10 + length])
        at += 10 + length


def said(kind, data):
    if kind == 1:
        return socket.inet_ntoa(data)
    if kind == 16:
        return data[1:1 + data[0]].decode()
    if kind == 33:
        labels, at = [], 6
        while data[at]:
            labels.append(data[at + 1:at + 1 + data[at]].decode())
            at += 1 + data[at]
        return ".".join(labels) + ":" + str(struct.unpack_from("!H", data, 4)[0])
    return f"type {kind}"


def by_udp(message):
    asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    asking.settimeout(5)
    asking.connect(SERVER)
    for _ in range(4):
        asking.send(message)
        try:
            return asking.recv(65535)
        except TimeoutError:
            # Lost, as any datagram may be where many arrive.
            pass
    raise TimeoutError


def by_tcp(message):
    with socket.create_connection(SERVER, timeout=20) as asking, asking.makefile("rb") as answers:
        asking.sendall(struct.pack("!H", len(message)) + message)
        return answers.read(struct.unpack("!H", answers.read(2))[0])


def skip_name(message, at):
    while message[at]:
        if message[at] >= 0xC0:
            return at + 2
        at += 1 + message[at]
    return at + 1


if __name__ == "__main__":
    main()
