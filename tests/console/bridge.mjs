// bridge.mjs MODULES CHROMIUM: a browser for a test in Python. Each line of standard input is a call
// {"call", "tab", "method", "args"} of a method of a Playwright page, or of the ones below; each line of output is
// {"call", "value"} or {"call", "error"}. What a page must not do is collected: errors, dialogs, breaches of its policy.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [modules, executablePath] = process.argv.slice(2);
const { chromium } = createRequire(`${modules}/`)("playwright-core");
const patience = 30_000 * Number(process.env.CARREL_PATIENCE ?? 1);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
});
const tabs = new Map();

// Runs in the page: whether the focus is at what is looked for, and how the user sees that.
const focused = (selector) => {
  const at = document.activeElement;
  const name = `${at.localName}.${at.className} ${at.textContent.slice(0, 40)}`;
  const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(at);
  const box = at.getBoundingClientRect();
  const wrong = [];
  // From the last element the browser goes through its own window, which a test has not.
  if (at !== document.body) {
    if ((outlineStyle === "none" || outlineWidth === "0px") && boxShadow === "none") wrong.push(`no mark: ${name}`);
    if (box.bottom < 1 || box.top > innerHeight || box.right < 1 || !box.width) wrong.push(`out of view: ${name}`);
  }
  return { there: at.matches(selector) || !!at.closest("label")?.matches(selector), wrong };
};

const own = {
  // A tab of a context of its own: no storage is shared with another tab.
  async open(name, { options = {}, url }) {
    const context = await browser.newContext({ acceptDownloads: true, ...options });
    const page = await context.newPage();
    const faults = [];
    const sent = { requests: 0, bytes: 0 };
    page.on("request", () => (sent.requests += 1));
    page.on("requestfinished", async (request) => {
      const { responseHeadersSize, responseBodySize } = await request.sizes().catch(() => ({ responseHeadersSize: 0, responseBodySize: 0 }));
      sent.bytes += responseHeadersSize + responseBodySize;
    });
    page.setDefaultTimeout(patience);
    page.on("pageerror", (e) => faults.push(`error: ${e.stack ?? e}`));
    page.on("dialog", (d) => {
      faults.push(`dialog: ${d.message()}`);
      void d.dismiss();
    });
    page.on("console", (m) => {
      if (m.type() === "error" && !m.text().startsWith("Failed to load resource")) faults.push(m.text());
    });
    await page.addInitScript(() => {
      document.addEventListener("securitypolicyviolation", (e) =>
        console.error(`policy: ${e.violatedDirective} ${e.blockedURI} ${e.sample} ${e.sourceFile}:${e.lineNumber}`),
      );
    });
    tabs.set(name, { page, context, faults, sent });
    await page.goto(url);
  },
  async close(name) {
    await tabs.get(name).context.close();
    tabs.delete(name);
  },
  faults: (name) => tabs.get(name).faults.splice(0),
  // Requests that the tab made so far, and the bytes of the answers that have ended, as they were sent.
  sent: (name) => tabs.get(name).sent,
  offline: (name, off) => tabs.get(name).context.setOffline(off),
  // Presses a key where the focus is.
  key: (name, key) => tabs.get(name).page.keyboard.press(key),
  type: (name, text) => tabs.get(name).page.keyboard.type(text),
  // Presses a key until what matches has the focus, as a user of the keyboard goes there. Returns what was wrong on
  // the way: a focus that was lost, that cannot be seen, or that is outside of the window.
  async go(name, selector, key) {
    const { page } = tabs.get(name);
    const wrong = new Set();
    for (let i = 0; i < 120; i++) {
      await page.keyboard.press(key);
      const told = await page.evaluate(`(${focused})(${JSON.stringify(selector)})`);
      told.wrong.forEach((what) => wrong.add(what));
      if (told.there) return [...wrong];
    }
    throw new Error(`${key} does not reach it; ${[...wrong]}`);
  },
  point: (name, x, y) => tabs.get(name).page.mouse.move(x, y),
  press: (name, x, y) => tabs.get(name).page.mouse.click(x, y),
  async shown(name, selector) {
    await tabs.get(name).page.locator(selector).first().waitFor();
  },
  async gone(name, selector) {
    await tabs.get(name).page.locator(selector).first().waitFor({ state: "detached" });
  },
  count: (name, selector) => tabs.get(name).page.locator(selector).count(),
  // Waits until an expression of the page is true. (The policy forbids waitForFunction, which uses eval.)
  async until(name, expression) {
    const { page } = tabs.get(name);
    for (const end = Date.now() + patience; !(await page.evaluate(expression)); ) {
      if (Date.now() > end) throw new Error("it did not become true");
      await new Promise((done) => setTimeout(done, 50));
    }
  },
  // The value of an expression in the frame whose URL begins so, once it is there.
  async framed(name, url, expression) {
    const { page } = tabs.get(name);
    for (const end = Date.now() + patience; Date.now() < end; ) {
      const frame = page.frames().find((f) => f.url().startsWith(url));
      const value = frame && (await frame.evaluate(expression).catch(() => undefined));
      if (value) return value;
      await new Promise((done) => setTimeout(done, 50));
    }
    throw new Error("the frame did not show it");
  },
  async download(name, selector) {
    const { page } = tabs.get(name);
    const [file] = await Promise.all([page.waitForEvent("download"), page.click(selector)]);
    const pieces = [];
    for await (const piece of await file.createReadStream()) pieces.push(piece);
    return { name: file.suggestedFilename(), base64: Buffer.concat(pieces).toString("base64") };
  },
  async upload(name, selector, file, base64) {
    const { page } = tabs.get(name);
    const [chooser] = await Promise.all([page.waitForEvent("filechooser"), page.click(selector)]);
    await chooser.setFiles({ name: file, mimeType: "application/octet-stream", buffer: Buffer.from(base64, "base64") });
  },
  // What a screen reader is given: each node with its role, its name, and the roles that it is in.
  async spoken(name) {
    const { page, context } = tabs.get(name);
    const session = await context.newCDPSession(page);
    const { nodes } = await session.send("Accessibility.getFullAXTree");
    await session.detach();
    const all = new Map(nodes.map((n) => [n.nodeId, n]));
    const walk = (n, inside) => {
      const role = n.role?.value ?? "";
      const children = (n.childIds ?? []).flatMap((id) => walk(all.get(id), [...inside, role]));
      if (n.ignored) return children;
      const properties = (n.properties ?? []).map((p) => [p.name, p.value.value]);
      return [{ ...Object.fromEntries(properties), role, name: n.name?.value ?? "", inside }, ...children];
    };
    return walk(nodes[0], []);
  },
  // The serious findings of axe, which is injected past the policy of the page.
  async axe(name) {
    const { page } = tabs.get(name);
    const { source } = createRequire(`${modules}/`)("axe-core");
    if (!(await page.evaluate("!!window.axe"))) await page.evaluate(source);
    const { violations } = await page.evaluate("axe.run({ resultTypes: ['violations'] })");
    return violations
      .filter((v) => v.impact === "serious" || v.impact === "critical")
      .map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target} ${n.failureSummary}`).join("; ")}`);
  },
};

async function call({ tab, method, args }) {
  if (method in own) return own[method](tab, ...args);
  return tabs.get(tab).page[method](...args);
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  let answer = { call: asked.call };
  try {
    const value = await call(asked);
    answer.value = Buffer.isBuffer(value) ? null : value;
  } catch (e) {
    answer.error = String(e.message ?? e);
  }
  // An element or a response of Playwright is not for Python.
  let text;
  try {
    text = JSON.stringify(answer);
  } catch {
    text = JSON.stringify({ call: asked.call });
  }
  if (text.length > 8_000_000) text = JSON.stringify({ call: asked.call, error: "the answer is too long" });
  process.stdout.write(`${text}\n`);
}
await browser.close();
