// The official client library against `carrel mcp` and /mcp: what it validates is the test.
// usage: node sdk_client.cjs lines PROGRAM | http URL TOKEN
const assert = require("node:assert");
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = require("@modelcontextprotocol/sdk/client/streamableHttp.js");
const types = require("@modelcontextprotocol/sdk/types.js");

const [kind, where, token] = process.argv.slice(2);
const transport = kind === "lines"
    ? new StdioClientTransport({ command: where, args: ["mcp"], env: process.env })
    : new StreamableHTTPClientTransport(new URL(where), { requestInit: { headers: { Authorization: "Bearer " + token } } });

async function main() {
    const client = new Client({ name: "sdk", version: "1" }, { capabilities: { elicitation: {} } });
    client.setRequestHandler(types.ElicitRequestSchema, async (r) => {
        assert.strictEqual(r.params.message, "Which one?");
        return { action: "accept", content: { answer: "two" } };
    });
    const updated = new Promise((done) => client.setNotificationHandler(
        types.ResourceUpdatedNotificationSchema, (n) => done(n.params.uri)));
    await client.connect(transport);
    assert.strictEqual(client.getServerVersion().name, "carrel");

    const { tools } = await client.listTools(); // from now on results are checked against the output schemas
    assert(tools.length >= 12);
    const call = async (name, args, options) => {
        const r = await client.callTool({ name, arguments: args }, undefined, options);
        assert(!r.isError, JSON.stringify(r.content));
        return r.structuredContent;
    };
    const made = await call("exec", { cmd: "echo hello > f; cat f" });
    assert.strictEqual(made.stdout, "hello\n");
    for (const [name, args] of [
        ["write", { path: "/home/user/w.txt", content: "one\ntwo\n" }],
        ["read", { path: "/home/user/w.txt" }],
        ["edit", { path: "/home/user/w.txt", edits: [{ old: "one", new: "1" }] }],
        ["search", { pattern: "two" }],
        ["plan", { items: [{ text: "x", status: "done" }] }],
        ["machine_list", {}],
        ["finish", { status: "done", summary: "s", evidence: ["e"] }],
        ["session", { session: made.session }],
    ])
        await call(name, args);
    assert.deepStrictEqual(await call("ask", { question: "Which one?", options: ["one", "two"] }),
        { action: "accept", answer: "two" });

    let steps = 0;
    await call("exec", { cmd: "for i in 1 2 3; do echo $i; sleep 1; done" }, { onprogress: () => steps++ });
    assert(steps >= 2, "progress");

    const stop = new AbortController();
    setTimeout(() => stop.abort("enough"), 300);
    await assert.rejects(call("exec", { cmd: "sleep 50", yield_ms: 50000 }, { signal: stop.signal }));

    const uri = `carrel://${made.machine}/files/home/user/f`;
    assert.strictEqual((await client.readResource({ uri })).contents[0].text, "hello\n");
    await client.subscribeResource({ uri });
    await call("exec", { cmd: "echo more >> f" });
    assert.strictEqual(await updated, uri);
    assert((await client.listResources()).resources.length > 3);
    assert.strictEqual((await client.listResourceTemplates()).resourceTemplates.length, 2);
    assert.strictEqual((await client.listPrompts()).prompts.length, 2);
    assert((await client.getPrompt({ name: "task", arguments: { task: "t" } })).messages.length);
    await client.setLoggingLevel("debug");
    assert.deepStrictEqual((await client.complete({
        ref: { type: "ref/resource", uri: "carrel://{machine}/files/{+path}" },
        argument: { name: "machine", value: "m-" } })).completion.values, [made.machine]);
    if (kind === "http")
        await transport.terminateSession();
    await client.close();
    console.log("ok");
}

main().then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
