"""A name server: python3 -c … ADDRESS CONTROL ZONE

ZONE is JSON: of each name a list of answers, the first time's first, the last one's from
then on. An answer is a list of addresses, or of one name that it leads to (CNAME); for
"SRV PORT TARGET" and "TXT TEXT" of these records too. What doesn't fit a datagram is
answered by TCP. At CONTROL it tells what was asked since the last time, as JSON, and begins anew.
"""

import ipaddress
import json
import socket
import struct
import sys
import threading

A, CNAME, TXT, AAAA, SRV = 1, 5, 16, 28, 33
KINDS = {A: "A", AAAA: "AAAA", TXT: "TXT", SRV: "SRV"}
SERVER_ANSWERS, NXDOMAIN, TRUNCATED = 0x8580, 0x8583, 0x0200


def main():
    address, control, zone = sys.argv[1:]
    global names
    names = json.loads(zone)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 53))
    threading.Thread(target=serve, args=(udp,), daemon=True).start()
    tcp = socket.create_server((address, 53))
    threading.Thread(target=serve_by_tcp, args=(tcp,), daemon=True).start()
    host, port = control.split(":")
    listener = socket.create_server((host, int(port)))
    print("serves", flush=True)
    while True:
        asking, _ = listener.accept()
        with lock:
            asking.sendall(json.dumps(asked).encode() + b"\n")
            asked.clear()
            times.clear()
        asking.close()


lock = threading.Lock()
asked = []
# How often A was asked for; a resolver asks for AAAA after it, or not at all.
times = {}


def serve(udp):
    while True:
        question, client = udp.recvfrom(4096)
        with lock:
            whole = answer(question)
        if len(whole) > 512:
            (flags,) = struct.unpack_from("!H", whole, 2)
            head = whole[:2] + struct.pack("!HHHHH", flags | TRUNCATED, 1, 0, 0, 0)
            whole = head + whole[12:read_name(whole, 12)[1] + 4]
        udp.sendto(whole, client)


def serve_by_tcp(tcp):
    while True:
        client, _ = tcp.accept()
        with client, client.makefile("rb") as messages:
            length, = struct.unpack("!H", messages.read(2))
            with lock:
                whole = answer(messages.read(length))
            client.sendall(struct.pack("!H", len(whole)) + whole)


def answer(question):
    name, end = read_name(question, 12)
    (kind,) = struct.unpack_from("!H", question, end)
    asked.append([name, KINDS.get(kind, str(kind))])
    records = []
    known = follow(name, kind, records)
    flags = SERVER_ANSWERS if known else NXDOMAIN
    head = question[:2] + struct.pack("!HHHHH", flags, 1, len(records), 0, 0)
    return head + question[12:end + 4] + b"".join(records)


def follow(name, kind, records):
    """Puts down a name's records, and those of what it leads to. Whether it's known."""
    answers = names.get(name.lower())
    if answers is None:
        return False
    if kind == A:
        times[name] = times.get(name, 0) + 1
    turn = max(times.get(name, 0) - 1, 0)
    for one in answers[min(turn, len(answers) - 1)]:
        words = one.split(" ")
        if words[0] == "SRV":
            if kind == SRV:
                data = struct.pack("!HHH", 0, 0, int(words[1])) + written(words[2])
                records.append(record(name, SRV, data))
            continue
        if words[0] == "TXT":
            if kind == TXT:
                records.append(record(name, TXT, bytes([len(words[1])]) + words[1].encode()))
            continue
        try:
            address = ipaddress.ip_address(one)
        except ValueError:
            records.append(record(name, CNAME, written(one)))
            return follow(one, kind, records)
        if kind == {4: A, 6: AAAA}[address.version]:
            records.append(record(name, kind, address.packed))
    return True


def record(name, kind, data):
    # For no time at all.
    return written(name) + struct.pack("!HHIH", kind, 1, 0, len(data)) + data


def written(name):
    labels = name.encode().split(b".")
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def read_name(message, at):
    labels = []
    while length := message[at]:
        labels.append(message[at + 1:at + 1 + length].decode("latin1"))
        at += 1 + length
    return ".".join(labels), at + 1


main()
