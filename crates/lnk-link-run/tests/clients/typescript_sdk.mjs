// The official TypeScript SDK as a client of Link Run, of its first and second major version.
//
//     node typescript_sdk.mjs PACKAGES VERSION SERVER ARGUMENT…
//
// VERSION is v1 or v2; PACKAGES is the node_modules that they are in.

import assert from "node:assert/strict"
import fs from "node:fs"
import { createRequire } from "node:module"
import { pathToFileURL } from "node:url"

const TIMEOUT = 12
const TOOLS = ["command", "start", "list", "read", "stop"]
const [packages, version, server, ...args] = process.argv.slice(2)

const load = (name) => import(pathToFileURL(createRequire(packages + "/").resolve(name)))
const { Client, StdioClientTransport } =
    version === "v1"
        ? {
              ...(await load("@modelcontextprotocol/sdk/client/index.js")),
              ...(await load("@modelcontextprotocol/sdk/client/stdio.js")),
          }
        : {
              ...(await load("@modelcontextprotocol/client")),
              ...(await load("@modelcontextprotocol/client/stdio")),
          }

const { PATH, HOME, LNK_SANDBOX_MOUNTS } = process.env
const transport = new StdioClientTransport({ command: server, args, env: { PATH, HOME, LNK_SANDBOX_MOUNTS } })
const client = new Client({ name: "test", version: "1" })
await client.connect(transport)

const call = (name, its, options) =>
    version === "v1"
        ? client.callTool({ name, arguments: its }, undefined, options)
        : client.callTool({ name, arguments: its }, options)
const command = (program, args, options) => call("command", { program, args }, options)
const text = (result) => {
    assert.equal(result.content.length, 1)
    return result.content[0].text
}
const printed = async (program, args) => {
    const result = await command(program, args)
    assert.ok(!result.isError && text(result).startsWith("exit status 0"), text(result))
    return text(result).split("--- stdout ---\n")[1]
}
const until = async (isSo, seconds) => {
    const end = performance.now() + 1000 * seconds
    while (!(await isSo())) {
        assert.ok(performance.now() < end, `it isn't so after ${seconds} s`)
        await new Promise((resume) => setTimeout(resume, 20))
    }
}
const runs = (mark) =>
    fs.readdirSync("/proc").some((process) => {
        try {
            return fs.readFileSync(`/proc/${process}/cmdline`, "utf8").split("\0").includes(mark)
        } catch {
            return false
        }
    })

assert.equal(client.getServerVersion().name, "run")
assert.deepEqual((await client.listTools()).tools.map((tool) => tool.name), TOOLS)

const heard = []
const timedOut = command("sh", ["-c", "echo begun; sleep 60"], {
    onprogress: ({ progress }) => heard.push(progress),
})

assert.equal(await printed("python3", ["-c", "print(2**100)"]), "1267650600228229401496703205376\n")
assert.equal(await printed("sh", ["-c", "printf 'b\\na\\n' | sort | tr a-z A-Z"]), "A\nB\n")

const refused = await command("mount", [])
assert.ok(refused.isError && text(refused).includes("[commands] allow"), text(refused))

const mark = `${1000 + process.pid}.${process.hrtime.bigint()}`
const control = new AbortController()
const given = command("sleep", [mark], { signal: control.signal })
await until(() => runs(mark), 30)
control.abort("not wanted")
await assert.rejects(given)
await until(() => !runs(mark), 2)

const began = performance.now()
const numbers = Array.from({ length: 20 }, (_, number) => number)
const all = await Promise.all(numbers.map((number) => printed("sh", ["-c", `sleep 1; echo ${number}`])))
assert.deepEqual(all, numbers.map((number) => `${number}\n`))
assert.ok(performance.now() - began < 15_000)

const started = text(await call("start", { program: "sh", args: ["-c", "seq 1 2000; exit 3"] }))
const [, id] = started.match(/^started (\w+)/)
await until(async () => text(await call("list", {})).includes("exit status 3"), 30)
assert.ok(text(await call("read", { id })).includes("2000"))

const late = await timedOut
assert.ok(late.isError && text(late).startsWith(`timed out after ${TIMEOUT} seconds`), text(late))
assert.ok(text(late).includes("begun"))
assert.deepEqual(heard, [10])

if (version === "v1") await client.ping()
await client.close()
