"""The official Python SDK as a client of Link Run, in both eras of the protocol.

    python_sdk.py LOG SERVER ARGUMENT…

Every line that the server writes is kept beside LOG, and is to be what the protocol's own
models say, of the version that was spoken.
"""

import json
import os
import pathlib
import re
import sys
import time

import anyio
from mcp import Client, StdioServerParameters
from mcp_types import jsonrpc, methods

TIMEOUT = 12
TOOLS = ["command", "start", "list", "read", "stop"]


def text(result):
    (content,) = result.content
    assert result.structured_content is None
    return content.text


async def command(client, program, *args, **more):
    return await client.call_tool("command", {"program": program, "args": list(args)}, **more)


async def printed(client, program, *args):
    """What a program that ends well prints."""
    result = await command(client, program, *args)
    said = text(result)
    assert not result.is_error and said.startswith("exit status 0"), said
    return said.partition("--- stdout ---\n")[2]


async def a_calculation(client):
    assert await printed(client, "python3", "-c", "print(2**100)") == "1267650600228229401496703205376\n"


async def a_pipeline(client):
    assert await printed(client, "sh", "-c", "printf 'b\\na\\n' | sort | tr a-z A-Z") == "A\nB\n"


async def a_refused_program(client):
    direct = await command(client, "mount")
    assert direct.is_error and "[commands] allow" in text(direct), direct
    inside = await command(client, "sh", "-c", "mount; echo went on")
    assert not inside.is_error and "went on" in text(inside), inside
    assert "refused /usr/bin/mount: add it to [commands] allow" in text(inside), inside


async def a_time_out_with_progress(client):
    heard = []

    async def progress(done, total, message):
        heard.append(done)

    result = await command(client, "sh", "-c", "echo begun; sleep 60", progress_callback=progress)
    assert result.is_error and text(result).startswith(f"timed out after {TIMEOUT} seconds"), result
    assert "begun" in text(result)
    assert heard == [10], heard


def runs(mark):
    """Whether a process of this machine has a word in its command line."""
    for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in process.read_text(errors="replace").split("\0"):
                return True
        except OSError:
            pass
    return False


async def until(is_so, seconds):
    with anyio.fail_after(seconds):
        while not is_so():
            await anyio.sleep(0.02)


async def a_cancelled_call(client):
    mark = f"{1000 + os.getpid()}.{time.monotonic_ns()}"
    async with anyio.create_task_group() as calls:
        calls.start_soon(command, client, "sleep", mark)
        await until(lambda: runs(mark), 30)
        calls.cancel_scope.cancel()
    await until(lambda: not runs(mark), 2)


async def twenty_at_once(client):
    async def one(number):
        assert await printed(client, "sh", "-c", f"sleep 1; echo {number}") == f"{number}\n"

    started = time.monotonic()
    async with anyio.create_task_group() as calls:
        for number in range(20):
            calls.start_soon(one, number)
    assert time.monotonic() - started < 15


async def one_in_the_background(client):
    script = "seq 1 2000; exit 3"
    started = text(await client.call_tool("start", {"program": "sh", "args": ["-c", script]}))
    (known,) = re.findall(r"started (\w+)", started)
    with anyio.fail_after(30):
        while "exit status 3" not in text(await client.call_tool("list", {})):
            await anyio.sleep(0.05)
    assert "2000" in text(await client.call_tool("read", {"id": known}))
    # It has ended, which is said and no error of the protocol's.
    assert text(await client.call_tool("stop", {"id": known}))


async def session(mode, log, server):
    kept = f"{log}.{mode}"
    # Closing standard input goes through.
    tee = 'tee "$0.sent" | "$@" | tee "$0.received"'
    names = ("PATH", "HOME", "LNK_SANDBOX_MOUNTS")
    parameters = StdioServerParameters(
        command="bash", args=["-c", tee, kept, *server], env={name: os.environ[name] for name in names}
    )
    told = []

    async def log_message(params):
        told.append(params)

    async with Client(parameters, mode=mode, logging_callback=log_message) as client:
        version = client.protocol_version
        assert client.server_info.name == "run"
        assert [tool.name for tool in (await client.list_tools()).tools] == TOOLS
        async with anyio.create_task_group() as calls:
            calls.start_soon(a_time_out_with_progress, client)
            await a_calculation(client)
            await a_pipeline(client)
            await a_refused_program(client)
            await a_cancelled_call(client)
            await twenty_at_once(client)
            await one_in_the_background(client)
        if mode == "legacy":
            await client.send_ping()
            await until(lambda: told, 30)
            await client.set_logging_level("error")
        else:
            assert told == []
    validate(kept, version)
    return version


def lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_bytes().splitlines()]


def validate(kept, version):
    """Checks all that the server wrote by the protocol's models."""
    asked = {message["id"]: message["method"] for message in lines(f"{kept}.sent") if "id" in message}
    received = lines(f"{kept}.received")
    assert len(received) >= 30, "nothing was kept"
    for message in received:
        if "method" in message:
            assert "id" not in message, f"a server asks nothing: {message}"
            jsonrpc.JSONRPCNotification.model_validate(message)
            methods.parse_server_notification(message["method"], version, message.get("params"))
        elif "error" in message:
            jsonrpc.JSONRPCError.model_validate(message)
        else:
            jsonrpc.JSONRPCResponse.model_validate(message)
            methods.parse_server_result(asked[message["id"]], version, message["result"])
    cancelled = {message["params"]["requestId"] for message in lines(f"{kept}.sent") if "cancelled" in message["method"]}
    assert len(cancelled) == 1
    answered = [message["id"] for message in received if "id" in message]
    assert cancelled.isdisjoint(answered), "a request that was given up is answered"
    assert sorted(answered) == sorted(set(asked) - cancelled), "each other request is answered once"


async def main(log, *server):
    versions = {mode: await session(mode, log, server) for mode in ("legacy", "auto")}
    assert versions == {"legacy": "2025-11-25", "auto": "2026-07-28"}, versions


anyio.run(main, *sys.argv[1:])
