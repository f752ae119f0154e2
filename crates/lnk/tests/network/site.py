"""A site of the internet over TLS: python3 -c … FOLDER ADDRESS, at port 443.

In FOLDER it makes a certificate authority, ca.pem, and what it serves: a page, a git
repository, and a package `small` for pip, npm and cargo. It says on standard output
that it serves.
"""

import base64
import hashlib
import http.server
import io
import json
import os
import ssl
import subprocess
import sys
import tarfile
import zipfile

FOLDER, ADDRESS = sys.argv[1:]
URL = "https://origin.test.example"


def main():
    os.chdir(FOLDER)
    make_certificates()
    write("site/hello", b"hello from the origin\n")
    make_repository()
    make_wheel()
    make_npm_package()
    make_crate()
    serve()


def write(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def run(*argv, **options):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


def make_certificates():
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    run("openssl", "req", "-x509", *key, "-subj", "/CN=Authority of a test", "-keyout", "ca.key",
        "-out", "ca.pem", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    run("openssl", "req", "-x509", *key, "-CA", "ca.pem", "-CAkey", "ca.key",
        "-subj", "/CN=*.test.example", "-keyout", "site.key", "-out", "site.pem",
        "-addext", "subjectAltName=DNS:*.test.example", "-addext", "basicConstraints=CA:FALSE")


def make_repository():
    write("work/hello", b"hello from the origin\n")
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@test.example", "-C", "work"]
    run(*git, "init", "-q", "-b", "main")
    run(*git, "add", ".")
    run(*git, "commit", "-q", "-m", "first")
    run("git", "clone", "-q", "--bare", "work", "site/repo.git")
    run("git", "-C", "site/repo.git", "update-server-info")


def make_wheel():
    info = "small-1.0.0.dist-info"
    files = {
        "small.py": "def hello():\n    return 'hello from the origin'\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: small\nVersion: 1.0.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    name = "small-1.0.0-py3-none-any.whl"
    write(f"site/wheels/{name}", wheel.getvalue())
    digest = hashlib.sha256(wheel.getvalue()).hexdigest()
    link = f'<!DOCTYPE html><a href="/wheels/{name}#sha256={digest}">{name}</a>'
    write("site/simple/small/index.html", link.encode())


def archive(files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content.encode()))
    return packed.getvalue()


def make_npm_package():
    package = {"name": "small", "version": "1.0.0", "main": "index.js"}
    packed = archive({
        "package/package.json": json.dumps(package),
        "package/index.js": "module.exports = 'hello from the origin';\n",
    })
    digest = base64.b64encode(hashlib.sha512(packed).digest()).decode()
    dist = {"tarball": f"{URL}/tarballs/small-1.0.0.tgz", "integrity": f"sha512-{digest}"}
    packument = {
        "name": "small",
        "dist-tags": {"latest": "1.0.0"},
        "versions": {"1.0.0": {**package, "dist": dist}},
    }
    write("site/tarballs/small-1.0.0.tgz", packed)
    write("site/npm/small", json.dumps(packument).encode())


def make_crate():
    manifest = '[package]\nname = "small"\nversion = "1.0.0"\nedition = "2021"\n'
    packed = archive({"small-1.0.0/Cargo.toml": manifest, "small-1.0.0/src/lib.rs": ""})
    entry = {
        "name": "small",
        "vers": "1.0.0",
        "deps": [],
        "features": {},
        "cksum": hashlib.sha256(packed).hexdigest(),
        "yanked": False,
    }
    download = f"{URL}/crates/{{crate}}-{{version}}.crate"
    write("site/index/config.json", json.dumps({"dl": download}).encode())
    write("site/index/sm/al/small", json.dumps(entry).encode() + b"\n")
    write("site/crates/small-1.0.0.crate", packed)


def serve():
    os.chdir("site")

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments):
            pass

    class Server(http.server.ThreadingHTTPServer):
        # The handshake is the connection's own thread's.
        def finish_request(self, request, client):
            try:
                request = context.wrap_socket(request, server_side=True)
                super().finish_request(request, client)
            except OSError:
                pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain("../site.pem", "../site.key")
    server = Server((ADDRESS, 443), Handler)
    print("serves", flush=True)
    server.serve_forever()


main()
