// Cases of the TypeScript SDK, one per name: node cases.mjs NAME. tests/sdk/test_typescript.py runs them.
import assert from "node:assert/strict";
import { createServer } from "node:net";
import { CarrelError, Client, ConnectionError, eventBytes, fetchPort, Machine, Process, TimeoutError } from "carrel";

const url = process.env.TEST_URL;
const client = new Client({ url, token: process.env.TEST_TOKEN });
const text = (bytes) => new TextDecoder().decode(bytes);
const code = (wanted) => (error) => error instanceof CarrelError && error.code === wanted;

async function withMachine(story, fields = {}) {
  const machine = await Machine.create(fields, client);
  try {
    await story(machine);
  } finally {
    await machine.destroy();
  }
}

/** Until the function gives something; the test that runs us has the deadline. */
async function until(look) {
  for (;;) {
    const found = await look();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The URL of a server that answers each connection with these bytes, and closes it unless it hangs. */
function answering(bytes, { hangs = false } = {}) {
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      socket.on("error", () => undefined);
      socket.once("data", () => (hangs ? socket.write(bytes) : socket.end(bytes)));
    });
    server.listen(0, "127.0.0.1", () => resolve([`http://127.0.0.1:${server.address().port}`, server]));
  });
}

const asJson = (body) => `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`;

const cases = {
  async life() {
    await withMachine(async (m) => {
      assert.equal(m.view.state, "running");
      assert.deepEqual(m.view.metadata, { a: "b" });
      assert.equal((await Machine.get("first", client)).id, m.id);
      assert.deepEqual((await client.machines({ name: "first" })).map((o) => o.id), [m.id]);
      const result = await m.exec("echo out; echo err >&2; exit 3");
      assert.deepEqual([result.status, result.stdout, result.stderr], [3, "out\n", "err\n"]);
      assert.throws(() => result.check(), /exited with 3/);
      assert.deepEqual([...(await m.exec(["printf", "\\377"])).stdoutBytes], [255]);
      assert.equal((await m.exec("cat", { stdin: "as text" })).check().stdout, "as text");
      assert.ok((await m.update({ ttl: "1h" })).expires);
      await m.pause();
      assert.equal((await m.refresh()).state, "paused");
      await m.resume();
      assert.ok((await m.stats()).disk_bytes >= 0);
      await m.destroy();
      await m.destroy();
    }, { name: "first", metadata: { a: "b" } });
  },

  async output() {
    await withMachine(async (m) => {
      const got = [];
      for await (const event of m.stream("echo one; read line; echo got $line", { stdin_open: true })) {
        got.push(event);
        if (event.type === "stdout" && text(eventBytes(event)) === "one\n") {
          const process = new Process(client, await client.call("exec_show", { machine: m.id, exec: got[0].exec }));
          await process.write("two\n", true);
        }
      }
      assert.deepEqual(got.map((e) => e.type), ["start", "stdout", "stdout", "exit"]);
      assert.equal(got[3].exec.status, 0);
      for await (const event of m.stream("echo begun; sleep 1000")) {
        if (event.type === "stdout") break;
      }
      assert.equal((await m.exec("echo alive")).stdout, "alive\n");
    });
  },

  async background() {
    await withMachine(async (m) => {
      const process = await m.start("cat; echo end >&2", { stdin_open: true });
      await process.write("in", true);
      assert.equal((await process.wait()).status, 0);
      assert.equal(text(await process.output()), "in");
      assert.equal(text(await process.output("stderr")), "end\n");
      const types = [];
      for await (const event of process.events()) types.push(event.type);
      assert.equal(types.at(-1), "exit");
      const sleeping = await m.start(["sleep", "1000"]);
      await sleeping.signal("TERM");
      assert.equal((await sleeping.wait()).signal, 15);
      const other = await m.start(["sleep", "1000"]);
      await other.kill();
      assert.equal((await other.wait()).signal, 9);
    });
  },

  async files() {
    await withMachine(async ({ files, ...m }) => {
      await files.write("/home/user/a", "text é");
      assert.equal(await files.readText("/home/user/a"), "text é");
      assert.equal((await files.stat("/home/user/a")).size, 7);
      await files.mkdir("/home/user/d/e");
      await files.move("/home/user/a", "/home/user/d/b");
      assert.equal(await files.exists("/home/user/a"), false);
      assert.deepEqual((await files.list("/home/user/d")).map((e) => e.name).sort(), ["b", "e"]);
      const archive = await files.readTar("/home/user/d");
      await files.mkdir("/home/user/copy");
      await files.writeTar("/home/user/copy", archive);
      await files.remove("/home/user/d", true);
      assert.equal(await files.exists("/home/user/d"), false);
      const big = new Uint8Array(5 << 20).map((_, i) => (i * 7919) >> 3);
      await files.write("/home/user/big", big);
      assert.deepEqual(await files.read("/home/user/big"), big);
      await assert.rejects(files.read("/home/user/none"), (e) => code("not_found")(e) && e.status === 404);
      assert.ok(m.id);
    });
  },

  async steps() {
    await withMachine(async (m) => {
      await m.files.write("/home/user/n", "1");
      const good = await m.snapshot("good");
      await m.files.write("/home/user/n", "2");
      assert.deepEqual((await m.diff(good)).changes.map((c) => [c.path, c.change]), [["home/user/n", "modified"]]);
      const forks = await m.fork(2, good);
      for (const fork of forks) assert.equal(await fork.files.readText("/home/user/n"), "1");
      await m.rewind("good");
      assert.equal(await m.files.readText("/home/user/n"), "1");
      assert.ok((await m.steps()).some((step) => step.name === "good"));
      const rows = await m.tournament("head -c 2 /dev/urandom | od -An -tu2 | tr -d ' ' >score", "cat score", { count: 3 });
      const scores = rows.map((row) => row.score);
      assert.deepEqual(scores, [...scores].sort((a, b) => b - a));
      const alive = (await client.machines({ state: "running" })).map((o) => o.id);
      assert.deepEqual(alive.sort(), [m.id, rows[0].machine.id, ...forks.map((f) => f.id)].sort());
      const none = await m.tournament("true", "echo no number");
      assert.deepEqual(none.map((row) => row.score), [undefined, undefined]);
      for (const other of [...forks, rows[0].machine, ...none.map((row) => row.machine)]) await other.destroy();
    });
  },

  async run() {
    const result = await Machine.run("echo $A", { env: { A: "b" }, machine: { limits: { mem: "128M" } } }, client);
    assert.equal(result.stdout, "b\n");
    await until(async () => (await client.machines()).length === 0);
  },

  async ship() {
    await withMachine(async (m) => {
      await m.files.mkdir("/home/user/job");
      await m.files.write("/home/user/job/note", "shipped");
      assert.ok((await m.freeze("/home/user/job")).bytes > 0);
      await m.ship("/home/user/job", process.env.TEST_TARGET);
      await assert.rejects(m.ship("/home/user/none", process.env.TEST_TARGET), CarrelError);
    });
  },

  async outside() {
    await withMachine(async (m) => {
      assert.equal((await m.allow("https://a.example")).at(-1).action, "allow");
      await client.call("secret_set", { secret: "API_KEY" }, { value: "some value of it" });
      assert.equal((await m.grant("secret", "API_KEY", { at: "a.example" })).at(-1).kind, "secret");
      await m.start("echo hello >page; python3 -m http.server 8000");
      const port = await m.expose(8000);
      assert.match(port.url, /^http/);
      let answer;
      while ((answer = await fetchPort(port, "/page", { headers: { Accept: "*/*" } })).status === 502) await answer.text();
      assert.equal(await answer.text(), "hello\n");
      assert.throws(() => fetchPort({ ...port, direct_url: undefined }), CarrelError);
      await m.unexpose(8000);
      await assert.rejects(m.unexpose(8000), CarrelError);
    });
  },

  /** The machine of TEST_MACHINE asks for one host after the other. */
  async approvals() {
    const m = await Machine.get(process.env.TEST_MACHINE, client);
    const [item] = await m.pending();
    assert.equal(item.host, "a.example");
    await (process.env.TEST_DECISION === "approve" ? m.approve(item) : m.deny(item.id));
    await until(async () => !(await m.pending()).some((other) => other.id === item.id));
  },

  async cell() {
    const program = new TextEncoder().encode(`(module
      (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1)
      (data (i32.const 16) "from a cell\\0a")
      (func (export "_start")
        (i32.store (i32.const 0) (i32.const 16)) (i32.store (i32.const 4) (i32.const 12))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))`);
    const cell = await Machine.cell({ hello: program }, {}, client);
    assert.equal((await cell.exec(["hello"])).check().stdout, "from a cell\n");
    await cell.destroy();
  },

  async operations() {
    const document = await client.call("openapi", {});
    for (const item of Object.values(document.paths)) {
      for (const { operationId } of Object.values(item)) assert.equal(typeof operationId, "string");
    }
    assert.equal(text(await client.call("healthz", {})), "ok\n");
    assert.ok((await client.status()).version);
    await assert.rejects(client.call("machine_show", { machine: "" }), /is empty/);
    await assert.rejects(client.call("machine_show", { machine: "none" }), code("not_found"));
  },

  async wrong() {
    if (url.startsWith("http")) await assert.rejects(new Client({ url, token: "wrong" }).machines(), code("denied"));
    await assert.rejects(new Client({ url: "unix:/nonexistent/carrel.sock", wait: 0 }).machines(), ConnectionError);
    for (const bad of ["ftp://x", "http://", "carrel", "http://a?b", "unix:relative"]) assert.throws(() => new Client({ url: bad }), TypeError);
    const broken = [
      ["nonsense\r\n\r\n", ConnectionError], ["", ConnectionError],
      ["HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", ConnectionError],
      ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", ConnectionError],
      ["HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\n{}", CarrelError],
      ["HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", CarrelError],
      ["HTTP/1.1 101 Up\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ConnectionError], ["HTTP/1.1 999 What\r\n\r\n", ConnectionError],
      ["HTTP/1.1 100 Wait\r\n\r\n".repeat(20000), ConnectionError], ["HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc", ConnectionError],
      ...["{", "null", "[".repeat(100000), "[1]", '"text"'].map((body) => [asJson(body), CarrelError]),
    ];
    for (const [bytes, kind] of broken) {
      const [at, server] = await answering(bytes);
      await assert.rejects(new Client({ url: at, wait: 0 }).status(), kind);
      server.close();
    }
    const [at, server] = await answering("HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nContent-Length: 99\r\n\r\n{\"id\": 1}\n{\"i");
    const got = [];
    await assert.rejects((async () => {
      for await (const event of new Client({ url: at, wait: 0 }).events("events", {})) got.push(event);
    })(), ConnectionError);
    assert.deepEqual(got, [{ id: 1 }]);
    server.close();
  },

  /** JSON that is not what the operation promises. */
  async types() {
    const view = { id: "m-1", state: "running" };
    const wrong = [
      [{ state: "running" }, (c) => Machine.get("m", c)], [{ id: ["m"] }, (c) => Machine.create({}, c)],
      [{ machines: 5 }, (c) => c.machines()], [{ machines: [null] }, (c) => c.machines()], [{}, (c) => c.pending()],
      [{ stdout: "" }, (c) => new Machine(c, view).exec("true")], [{ exec: { status: "0" } }, (c) => new Machine(c, view).exec("true")],
      [{ exec: { status: 0 }, stdout_base64: "=" }, (c) => new Machine(c, view).exec("true")],
      [{ machines: null }, (c) => new Machine(c, view).fork()], [{}, (c) => new Machine(c, view).start("true")],
    ];
    for (const [body, ask] of wrong) {
      const [at, server] = await answering(asJson(JSON.stringify(body)));
      await assert.rejects(ask(new Client({ url: at, wait: 0 })), code("unknown"));
      server.close();
    }
    const nowhere = new Client({ url: "http://127.0.0.1:1", wait: 0 });
    await assert.rejects(nowhere.call("expose_remove", { machine: "m", port: ".." }), /may not be '\.\.'/);
    await assert.rejects(nowhere.call("machine_shw", {}), /no operation/);
    await assert.rejects(new Client({ url: "unix:/nonexistent/carrel.sock", wait: 1000 }).machines(), /carrel serve/);
    await assert.rejects(new Machine(nowhere, view).exec("true", { background: true }), /start\(\)/);
    await withMachine(async (m) => {
      assert.deepEqual([...(await m.exec("cat", { stdin: new Uint8Array([255, 0]) })).stdoutBytes], [255, 0]);
      const before = (await client.machines({ state: "running" })).length;
      await assert.rejects(m.tournament("true", 5), CarrelError);
      assert.equal((await client.machines({ state: "running" })).length, before);
    });
  },

  /** What a daemon is waited for, and who may end that. */
  async limits() {
    const passed = (text) => (error) => error instanceof TimeoutError && text.test(error.message);
    const all = async (events) => { for await (const event of events) void event; };
    const silent = [
      ["", (c) => c.status(), /^status: the daemon at http:\S+ did not complete its answer within 0.2 s$/],
      ["HTTP/1.1 200 OK\r\nConte", (c) => c.status(), /^status: /],
      ["HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", (c) => c.call("machine_create", {}, { key: "a" }), /^machine_create: /],
      ["HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n{", (c) => c.status(), /^status: /],
      ["", (c) => all(c.events("events", {})), /^events: nothing came from the daemon at http:\S+ within 0.2 s$/],
      ["HTTP/1.1 200 OK\r\n\r\n{}\n", (c) => all(c.events("events", {})), /^events: nothing came/],
    ];
    await Promise.all(silent.map(async ([bytes, ask, message]) => {
      const [at, server] = await answering(bytes, { hangs: true });
      for (const other of [undefined, (place, init) => fetch(place, init)]) {
        await assert.rejects(ask(new Client({ url: at, fetch: other, timeout: 0.2 })), passed(message));
        for (const reason of [undefined, new Error("mine")]) {
          const controller = new AbortController();
          setTimeout(() => controller.abort(reason), 100);
          const told = ask(new Client({ url: at, fetch: other }).withOptions({ signal: controller.signal }));
          await assert.rejects(told, (e) => (reason ? e === reason : e.name === "AbortError"));
        }
      }
      server.close();
    }));
    await assert.rejects(client.withOptions({ signal: AbortSignal.abort(new Error("before")) }).status(), /^Error: before$/);
    for (const timeout of [0, -1, NaN, Infinity]) assert.throws(() => client.withOptions({ timeout }), RangeError);
    const lazy = async (m, timeout) => {
      const types = [];
      const lines = m.withOptions({ timeout }).stream(`for i in 1 2 3 4 5; do echo $i; sleep ${timeout / 4}; done`);
      for await (const event of lines) {
        if (event.type === "start") await new Promise((resolve) => setTimeout(resolve, timeout * 1200));
        types.push(event.type);
      }
      assert.deepEqual([types[0], types.at(-1)], ["start", "exit"]);
    };
    await withMachine(async (m) => {
      const reading = lazy(m, Number(process.env.TEST_SECONDS));  // never silent for so long, and read slowly
      await assert.rejects(m.withOptions({ timeout: 0.3 }).exec("while [ ! -e go ]; do sleep 0.05; done; echo >end"), passed(/^exec: /));
      await m.files.write("/home/user/go", "");
      (await m.exec("while [ ! -e end ]; do sleep 0.05; done")).check();
      const sleeping = await m.start("sleep 1000");
      await assert.rejects(sleeping.withOptions({ timeout: 0.3 }).wait(), passed(/^exec_events: /));
      await sleeping.kill();
      assert.equal((await sleeping.withOptions({ timeout: 1000 }).wait()).signal, 9);
      await reading;
    });
  },

  /** A server that sends the token elsewhere does not get it there, and an answer without end is not kept. */
  async redirect() {
    let stolen = "";
    const thief = createServer((socket) => socket.on("data", (data) => { stolen += data; socket.end(); }));
    await new Promise((resolve) => thief.listen(0, "127.0.0.1", resolve));
    const there = `http://127.0.0.1:${thief.address().port}`;
    const [at, server] = await answering(`HTTP/1.1 307 Go\r\nLocation: ${there}/\r\nContent-Length: 0\r\n\r\n`);
    for (const other of [undefined, (place, init) => fetch(place, init)]) {
      const c = new Client({ url: at, token: "a-token", wait: 0, fetch: other });
      await assert.rejects(c.call("secret_set", { secret: "A" }, { value: "a-secret" }));
    }
    assert.equal(stolen, "");
    await fetch(at, { method: "PUT", headers: { Authorization: "Bearer a-token" }, body: "a-secret" }).catch(() => undefined);
    assert.match(stolen, /a-secret/);  // what happens to those who follow it
    server.close();
    thief.close();
    const [endless, other] = await answering("HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n" + ("10000\r\n" + "x".repeat(65536) + "\r\n").repeat(40));
    await assert.rejects(new Client({ url: endless, wait: 0 }).status(), code("unknown"));
    other.close();
  },

  /** What a browser does, which has no sockets but fetch. */
  async fetch() {
    const other = new Client({ url, token: process.env.TEST_TOKEN, fetch: (at, init) => fetch(at, init) });
    const m = await Machine.create({}, other);
    const types = [];
    for await (const event of m.stream("echo out")) types.push(event.type);
    assert.deepEqual(types, ["start", "stdout", "exit"]);
    await m.files.write("/home/user/a", "b");
    assert.equal(await m.files.readText("/home/user/a"), "b");
    await m.destroy();
  },

  /** The test restarts the daemon once the command runs, and then says so. */
  async restart() {
    await withMachine(async (m) => {
      const process = await m.start("echo before; while [ ! -e go ]; do sleep 0.1; done; exit 5");
      const end = process.wait();
      console.log("running");
      await until(() => restarted);
      await m.files.write("/home/user/go", "");
      assert.equal((await end).status, 5);
    });
  },
};

let restarted = false;
process.stdin.on("data", () => { restarted = true; });
await cases[process.argv[2]]();
process.exit(0);
