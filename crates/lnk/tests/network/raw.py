"""A client that sends what it is told: raw.py ADDRESS:PORT WORD…

A word is sent, its escapes read as Python's, or it is one of: ANSWER, read an answer and
its body; END, read to the end; HALF, end the sending; MEBIBYTE, send one. All that
was read goes to standard output, and what END read of more than 2,000 bytes is its
length. At last it reads to the end, closes, and waits until the kernel keeps nothing of
the connection on this side or the other, and says so.
"""

import re
import socket
import sys
import time

# linux/net/tcp_states.h
TIME_WAIT, LISTEN = "06", "0A"


def main():
    address, *words = sys.argv[1:]
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    reader = connection.makefile("rb")
    for word in words:
        if word == "ANSWER":
            answer(reader)
        elif word == "END":
            end(reader)
        elif word == "HALF":
            connection.shutdown(socket.SHUT_WR)
        elif word == "MEBIBYTE":
            connection.sendall(b"\x55" * (1 << 20))
        else:
            connection.sendall(word.encode("latin1").decode("unicode_escape").encode("latin1"))
    end(reader)
    reader.close()
    connection.close()
    while lingers(int(port)):
        time.sleep(0.01)
    print("nothing lingers", flush=True)


def show(data):
    print(data.decode("latin1").replace("\r\n", "\n"), end="", flush=True)


def answer(reader):
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = reader.readline()
        if not line:
            break
        head += line
    show(head)
    length = re.search(rb"Content-Length: (\d+)", head)
    show(reader.read(int(length[1])) if length else b"")


def end(reader):
    try:
        rest = reader.read()
    except OSError as error:
        return show(f"<{error}>\n".encode())
    show(rest if len(rest) <= 2000 else f"<{len(rest)} bytes>\n".encode())


def lingers(port):
    for table in ["/proc/net/tcp", "/proc/net/tcp6"]:
        for line in open(table).readlines()[1:]:
            _, local, remote, state, *_ = line.split()
            ports = [int(end.split(":")[1], 16) for end in [local, remote]]
            if port in ports and state not in [TIME_WAIT, LISTEN]:
                return True
    return False


main()
