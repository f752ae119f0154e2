#!/usr/bin/env python3
"""Claude Code is told by Link Run that a build in the background has ended, and reads its output.

    npm install @anthropic-ai/claude-code
    python3 wake.py node_modules/.bin/claude path/to/lnk-link-run

A fake model on loopback stands in for the real one, so that this needs no account and no
network: it starts a build in the background, ends its turn, and when a message says that
the build has ended, reads the output.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUILD = "sleep 2; seq 1 2000; echo built; exit 3"
DEADLINE = 60
steps = []


class Model(BaseHTTPRequestHandler):
    """As much of a model's messages as Claude Code needs."""

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer("application/json", b"{}")

    do_GET = do_HEAD

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        block = next_block(asked)
        stop = "tool_use" if block["type"] == "tool_use" else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        # Claude Code takes messages of one id for one.
        message = {"id": f"msg_{len(steps)}", "type": "message", "role": "assistant", "model": asked.get("model"),
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not asked.get("stream"):
            message.update(content=[block], stop_reason=stop)
            return self.answer("application/json", json.dumps(message).encode())
        if stop == "tool_use":
            begun = dict(block, input={})
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            begun, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        events = [
            {"type": "message_start", "message": message},
            {"type": "content_block_start", "index": 0, "content_block": begun},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
            {"type": "message_stop"},
        ]
        lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.answer("text/event-stream", "".join(lines).encode())

    def answer(self, kind, body):
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def next_block(asked):
    """What the model says next, by the last message."""
    tools = [tool.get("name", "") for tool in asked.get("tools") or []]
    tool = lambda name: next((its for its in tools if its.endswith("run__" + name)), None)
    said = lambda text: {"type": "text", "text": text}
    if not tool("start"):
        return said("ok")
    last = json.dumps(asked["messages"][-1]["content"])
    woken = re.search(r"Background command (\w+) ended: exit status 3", last)
    if '"tool_result"' in last and "started " in last:
        steps.append("started")
        return said("The build runs; I am told when it has ended.")
    if '"tool_result"' in last:
        steps.append("read" if "2000\\\\nbuilt" in last or "2000\\nbuilt" in last else "read nothing")
        return said("The build failed with status 3 after printing 'built'.")
    if woken and "from the tool run, not from the user" in last:
        steps.append("told")
        return {"type": "tool_use", "id": "toolu_2", "name": tool("read"), "input": {"id": woken[1]}}
    steps.append("asked")
    arguments = {"program": "sh", "args": ["-c", BUILD]}
    return {"type": "tool_use", "id": "toolu_1", "name": tool("start"), "input": arguments}


def main():
    claude, link_run = (str(pathlib.Path(path).absolute()) for path in sys.argv[1:3])
    model = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    # Not below /tmp, which a sandbox has one of its own of.
    with tempfile.TemporaryDirectory(prefix="wake-", dir="/var/tmp") as folder:
        folder = pathlib.Path(folder)
        events, files, config = folder / "events", folder / "files", folder / "mcp.json"
        files.mkdir()
        arguments = ["--folder", str(files), "--events", str(events)]
        servers = {"run": {"type": "stdio", "command": link_run, "args": arguments}}
        config.write_text(json.dumps({"mcpServers": servers}))
        harness = subprocess.Popen(
            [link_run, "wake", "--events", events, "--",
             claude, "-p", "--verbose", "--input-format", "stream-json",
             "--output-format", "stream-json", "--mcp-config", config, "--strict-mcp-config",
             "--allowedTools", "mcp__run__start,mcp__run__read", "--model", "claude-sonnet-4-5"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"PATH": os.environ["PATH"], "HOME": str(folder), "ANTHROPIC_API_KEY": "none",
                 "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{model.server_port}",
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})
        timer = threading.Timer(DEADLINE, harness.kill)
        timer.daemon = True
        timer.start()
        ask = {"type": "user", "message": {"role": "user", "content": "Run the build in the background."}}
        harness.stdin.write(json.dumps(ask) + "\n")
        harness.stdin.flush()
        turns = 0
        for line in harness.stdout:
            message = json.loads(line)
            if message["type"] == "result":
                turns += 1
                print(f"turn {turns}: {message['result']}", flush=True)
            if turns == 2:
                break
        harness.stdin.close()
        harness.stdout.read()
        harness.wait()
    expected = ["asked", "started", "told", "read"]
    if steps != expected:
        sys.exit(f"not as expected: {steps}")
    print("Claude Code was told that the build had ended, and read it.")


if __name__ == "__main__":
    main()
