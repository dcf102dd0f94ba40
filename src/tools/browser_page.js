// Runs in a page, in a world of its own: the page changes none of these functions. What the page contains is
// untrusted, so all loops and texts have limits. Properties are read by the getters of their prototypes, because
// elements of a page can be named like properties of its document and its forms.
const NODES = 40000, DEPTH = 400, TIME_MS = 3000, NAME = 120, LISTED = 10;
const began = performance.now();
const getter = (prototype, name) => {
  const get = Object.getOwnPropertyDescriptor(prototype, name).get;
  return (node) => get.call(node);
};
const method = (prototype, name) => (node, ...words) => prototype[name].apply(node, words);
const first = getter(Node.prototype, "firstChild"), next = getter(Node.prototype, "nextSibling");
const type = getter(Node.prototype, "nodeType"), data = getter(CharacterData.prototype, "data"), local = getter(Element.prototype, "localName");
const shadow = getter(Element.prototype, "shadowRoot"), top = getter(Document.prototype, "documentElement"), frame = getter(HTMLIFrameElement.prototype, "contentDocument");
const attribute = method(Element.prototype, "getAttribute"), rectangle = method(Element.prototype, "getBoundingClientRect");
const matches = method(Element.prototype, "matches"), byId = method(Document.prototype, "getElementById"), contains = method(Node.prototype, "contains");
const root = method(Node.prototype, "getRootNode"), shown = method(Element.prototype, "checkVisibility"), focus = method(HTMLElement.prototype, "focus");
const valueOf = (element) => {
  const of = { input: HTMLInputElement, textarea: HTMLTextAreaElement, select: HTMLSelectElement }[local(element)];
  return of ? getter(of.prototype, "value")(element) : "";
};

let nodes = 0;
// The clock is read now and then. Once spent, it stays so.
const spent = () => ++nodes > NODES || (nodes % 64 === 0 && performance.now() - began > TIME_MS && (nodes = NODES + 1) > 0);
const squeeze = (text) => text.replace(/\s+/g, " ").trim();
// Without control characters and those that nobody sees or that turn a text around.
const clean = (text) => text.toWellFormed().replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]|[\u{e0000}-\u{e007f}]/gu, "");
const cut = (text, most) => clean(text.length > most ? text.slice(0, most - 1) + "…" : text);

const SKIPPED = new Set(["script", "style", "noscript", "template", "head", "svg", "object", "canvas"]);
const FIELDS = { checkbox: "checkbox", radio: "radio", submit: "button", button: "button", reset: "button", image: "button", search: "searchbox", range: "slider", number: "spinbutton", hidden: null };
const ROLES = new Set(["button", "link", "checkbox", "radio", "tab", "menuitem", "menuitemcheckbox", "menuitemradio", "option", "switch", "combobox", "textbox", "searchbox", "slider", "spinbutton", "treeitem"]);

// The role of an element that a user can act on, or null.
const roleOf = (element) => {
  const given = squeeze(attribute(element, "role") ?? "").split(" ")[0], tag = local(element);
  if (ROLES.has(given)) return given;
  if ((tag === "a" || tag === "area") && attribute(element, "href") !== null) return "link";
  if (tag === "button" || tag === "summary") return "button";
  if (tag === "select") return "combobox";
  if (tag === "input") return Object.hasOwn(FIELDS, element.type) ? FIELDS[element.type] : "textbox";
  if (tag === "textarea" || /^(|true|plaintext-only)$/.test(attribute(element, "contenteditable") ?? "no")) return "textbox";
  return attribute(element, "onclick") === null ? null : "clickable";
};

// What a node shows: its shadow tree, the nodes of a slot, the document of a frame of the same site, or its children.
function* children(node) {
  const tag = type(node) === 1 ? local(node) : "", assigned = tag === "slot" ? node.assignedNodes() : [];
  if (tag === "iframe") {
    if (frame(node) && top(frame(node))) yield top(frame(node));
  } else if (assigned.length) {
    yield* assigned;
  } else {
    for (let child = first((tag && shadow(node)) || node); child; child = next(child)) yield child;
  }
}

// The text of an element and its images, as long as a name needs it.
const textOf = (element, most = NAME) => {
  let text = "";
  const add = (node, depth) => {
    for (const child of children(node)) {
      if (text.length > 4 * most || depth > DEPTH || spent()) return;
      if (type(child) === 3) text += data(child).slice(0, 4 * most);
      if (type(child) !== 1 || SKIPPED.has(local(child))) continue;
      if (local(child) === "img") text += " " + (attribute(child, "alt") ?? "").slice(0, most) + " ";
      else if (local(child) === "option" || shown(child, { visibilityProperty: true })) add(child, depth + 1);
    }
  };
  add(element, 0);
  return squeeze(text);
};

const nameOf = (element) => {
  const tag = local(element), ids = (attribute(element, "aria-labelledby") ?? "").split(/\s+/).slice(0, 8).filter(Boolean);
  const field = tag === "input" || tag === "textarea" || tag === "select";
  const labels = field ? [...(element.labels ?? [])].slice(0, 4) : [];
  const button = tag === "input" && FIELDS[element.type] === "button";
  const names = [
    () => ids.map((id) => byId(document, id)).filter(Boolean).map((e) => textOf(e)).join(" "),
    () => attribute(element, "aria-label"),
    () => labels.map((e) => textOf(e)).join(" "),
    () => (button ? valueOf(element) || attribute(element, "alt") || { submit: "Submit", reset: "Reset" }[element.type] : null),
    () => (field ? null : textOf(element)),
    () => attribute(element, "placeholder"),
    () => attribute(element, "title"),
    () => attribute(element, "name"),
  ];
  for (const name of names) {
    const text = squeeze((name() ?? "").slice(0, 4 * NAME));
    if (text) return cut(text, NAME);
  }
  return "";
};

const describe = (element) => {
  const role = roleOf(element) ?? local(element), name = nameOf(element), more = [];
  if (role === "checkbox" || role === "radio" || role === "switch") more.push(element.checked === true || attribute(element, "aria-checked") === "true" ? "on" : "off");
  else if (local(element) === "select") more.push(`= ${cut(JSON.stringify(textOf(element.selectedOptions[0] ?? element)), NAME)} of ${cut(Array.from({ length: Math.min(20, element.options.length) }, (_, i) => textOf(element.options[i])).join(", "), 2 * NAME)}`);
  else if (role !== "button" && valueOf(element)) more.push(element.type === "password" ? "= (hidden)" : `= ${cut(JSON.stringify(valueOf(element).slice(0, 4 * NAME)), NAME)}`);
  if (matches(element, ":disabled")) more.push("disabled");
  return `[${role}: ${name}${more.length ? " " + more.join(" ") : ""}]`;
};

const visible = (element) => shown(element, { visibilityProperty: true, opacityProperty: true });
const BLOCKS = /^(address|article|aside|blockquote|body|dd|div|dl|dt|fieldset|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|p|pre|section|table|tr|ul|label|iframe)$/;

// Calls on(element) for each visible element below a node; a true answer skips its content. Texts go to say().
const walk = (node, on, say, depth = 0) => {
  for (const child of children(node)) {
    if (spent() || depth > DEPTH) return;
    if (type(child) === 3) say(data(child));
    if (type(child) !== 1 || SKIPPED.has(local(child))) continue;
    // An element with display: contents has no box, but its children may have one.
    if (!visible(child) && getComputedStyle(child).display !== "contents") continue;
    const tag = local(child), block = BLOCKS.test(tag);
    if (block) say("\n");
    if (/^h[1-6]$/.test(tag)) say("#".repeat(Number(tag[1])) + " ");
    if (tag === "li") say("- ");
    if (!on(child)) walk(child, on, say, depth + 1);
    if (tag === "iframe" && !frame(child)) say("[a frame of another site]");
    if (block || tag === "br") say("\n");
    else if (tag === "td" || tag === "th") say(" | ");
  }
};

const read = ({ most }) => {
  const lines = [""];
  let size = 0, left = 0;
  const say = (words) => {
    if (words === "\n") {
      if (lines.at(-1).trim() || lines.length === 1) lines.push("");
      return;
    }
    const piece = words.slice(0, 200000).replace(/\s+/g, " "), room = Math.max(0, most - size);
    size += Math.min(room, piece.length);
    left += Math.max(0, words.length > 200000 ? words.length - room : piece.length - room);
    lines[lines.length - 1] += piece.slice(0, room);
  };
  walk(top(document), (element) => {
    const role = roleOf(element);
    if (local(element) === "img" && attribute(element, "alt")) say(` ${cut(squeeze(attribute(element, "alt").slice(0, 4 * NAME)), NAME)} `);
    if (role === null) return local(element) === "option";
    say(` ${describe(element)} `);
    return true;
  }, say);
  const text = lines.map((line) => clean(line).replace(/ {2,}/g, " ").trim()).filter(Boolean).join("\n");
  return { text, left, whole: !spent(), url: cut(location.href, 2000), title: cut(squeeze(getter(Document.prototype, "title")(document).slice(0, 2000)), 300) };
};

// ---- elements by name ----

const entries = () => {
  const found = [];
  walk(top(document), (element) => {
    if (roleOf(element) === null) return false;
    found.push(element);
    return found.length > NODES;
  }, () => {});
  return found;
};

// Elements that only show this text, such as a label or the button of a script.
const textual = (name) => {
  let found = [];
  walk(top(document), (element) => {
    if (textOf(element).toLowerCase() !== name) return false;
    found = found.filter((e) => !contains(e, element));
    found.push(element);
    return false;
  }, () => {});
  return found;
};

const list = (elements) => elements.slice(0, LISTED).map(describe).join(" ") + (elements.length > LISTED ? ` and ${elements.length - LISTED} more` : "");

// The element that a request names, as read() shows it: NAME, "role: NAME" or "[role: NAME]".
const find = ({ name, nth }) => {
  const [, role, rest] = /^\[?([a-z]+): *(.*?)\]?$/s.exec(name.trim()) ?? [], given = ROLES.has(role) || role === "clickable" ? role : null;
  const wanted = squeeze(given ? rest : name).toLowerCase(), all = entries().filter((e) => !given || roleOf(e) === given);
  const named = all.map((e) => [e, nameOf(e).toLowerCase()]);
  let found = named.filter(([, n]) => n === wanted);
  if (!found.length && wanted) found = named.filter(([, n]) => n.includes(wanted));
  found = found.map(([e]) => e);
  if (!found.length && wanted && !given) found = textual(wanted);
  if (!found.length) throw `no element is named '${cut(wanted, NAME)}'; the page has ${all.length ? list(all) : "no elements to act on"}`;
  if (nth > found.length || (found.length > 1 && !nth)) throw `${found.length} elements are named so: ${list(found)}; choose with nth, 1 to ${found.length}, or write 'role: name'`;
  return found[nth ? nth - 1 : 0];
};

// The middle of the first visible part of an element, in pixels of the window, after scrolling to it.
const place = (element) => {
  element.scrollIntoView({ block: "center", inline: "center", behavior: "instant" });
  const part = [...element.getClientRects()].find((r) => r.width > 0 && r.height > 0);
  if (!part) throw `${describe(element)} has no visible area`;
  let x = part.left + part.width / 2, y = part.top + part.height / 2;
  const hit = root(element).elementFromPoint(x, y);
  if (!hit) throw `${describe(element)} is outside of the window`;
  if (!contains(element, hit) && !contains(hit, element)) throw `${describe(element)} is covered by ${describe(hit)}`;
  for (let w = element.ownerDocument.defaultView; w.frameElement; w = w.parent) {
    const outer = rectangle(w.frameElement);
    x += outer.left + w.frameElement.clientLeft;
    y += outer.top + w.frameElement.clientTop;
  }
  return { x, y };
};

const point = (request) => {
  const element = find(request);
  // There is one tab, so a link opens in it.
  for (const holder of [element.closest("a, area"), element.closest("form")]) if (holder && attribute(holder, "target")) holder.setAttribute("target", "_self");
  return place(element);
};

const TYPED = new Set(["text", "search", "url", "tel", "email", "password", "number"]);
const changed = (element) => ["input", "change"].forEach((name) => element.dispatchEvent(new Event(name, { bubbles: true })));

// Prepares a field for typing: what it holds is deleted. Fields without typing get their value here.
const fill = (request) => {
  const element = find(request), tag = local(element), { text } = request;
  if (matches(element, ":disabled, :read-only:is(input, textarea)") && (tag !== "input" || TYPED.has(element.type) || matches(element, ":disabled")))
    throw `${describe(element)} cannot be changed`;
  if (tag === "select") {
    const wanted = squeeze(text).toLowerCase(), option = [...element.options].find((o) => textOf(o).toLowerCase() === wanted || o.value === text);
    if (!option) throw `${describe(element)} has no option '${cut(text, NAME)}'`;
    option.selected = true;
    changed(element);
    return { typed: false };
  }
  if (tag === "input" && !TYPED.has(element.type)) {
    if (["checkbox", "radio", "file", "submit", "button", "reset", "image"].includes(element.type)) throw `${describe(element)} cannot be filled: click it`;
    element.value = text;
    if (element.value !== text) throw `${describe(element)} does not take this value; a ${element.type} field holds '${element.value}'`;
    changed(element);
    return { typed: false };
  }
  focus(element);
  if (tag === "input" || tag === "textarea") element.select();
  else if (element.isContentEditable) getSelection().selectAllChildren(element);
  else throw `${describe(element)} cannot be filled: click it`;
  element.ownerDocument.execCommand("delete");
  return { typed: true };
};

try {
  return { read, point, fill }[request.what](request);
} catch (error) {
  return { error: cut(String(error), 2000) };
}
