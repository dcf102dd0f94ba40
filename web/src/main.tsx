import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { pending, pendingWatch } from "./approvals";
import { connected, eventsRun } from "./events";
import { pages } from "./pages";
import { href, go, route, subject } from "./router";
import { ended, logOut, offered, offerLeave, offerTake, sessionLoad, who } from "./session";
import "./style.css";
import { type Theme, theme, themeSet, themeStart } from "./theme";
import { FormDialog, OpenedDialog } from "./ui/dialog";
import { count, shown } from "./ui/format";
import { keysHelp, KeysOff, keysStart, useKeys } from "./ui/keys";
import { Toasts } from "./ui/toast";
import { leave } from "./ui/unsaved";

function Locked() {
  return (
    <main class="locked">
      <h1>Carrel</h1>
      {ended.value && <p role="alert">{ended.value}</p>}
      <p>Run this command on the host of the daemon, and open the link that it prints:</p>
      <pre>carrel console</pre>
    </main>
  );
}

function ThemeChoice() {
  return (
    <select aria-label="Theme" value={theme.value} onChange={(e) => themeSet(e.currentTarget.value as Theme)}>
      <option value="system">System</option>
      <option value="dark">Dark</option>
      <option value="light">Light</option>
    </select>
  );
}

function Frame() {
  const [first, ...parts] = route.value.parts;
  const page = pages.find((p) => p.path === first) ?? pages[0]!;
  const [menu, setMenu] = useState(false);
  const waiting = (pending.value ?? []).filter((item) => !item.approved).length;
  useKeys([
    ...pages.map((p) => ({ keys: `g ${p.key}`, what: `Go to ${p.title}`, run: () => go([p.path]) })),
    { keys: "?", what: "Show the keys", run: keysHelp },
  ]);
  useEffect(() => {
    document.title = [subject.value, page.title, "Carrel"].filter(Boolean).join(" · ");
  }, [page, subject.value]);
  useEffect(() => setMenu(false), [route.value]);
  // Another page begins at its top, for the eye, the Tab key and a screen reader.
  const place = href([page.path, ...parts]);
  const placeBefore = useRef(place);
  useEffect(() => {
    if (placeBefore.current === place) return;
    placeBefore.current = place;
    window.scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }, [place]);
  return (
    <div class="frame">
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main")?.focus(); }}>
        Skip to the content
      </a>
      <header class="top">
        <button type="button" class="menu quiet" aria-label="Pages" aria-expanded={menu} onClick={() => setMenu(!menu)}>☰</button>
        <strong>Carrel</strong>
        {waiting > 0 && (
          <a class="waits badge warn" href={href(["approvals"])} aria-label={`Approvals: ${waiting} waiting`}>{waiting}</a>
        )}
        {!connected.value && <span class="lost" role="alert">Connection lost. Trying again…</span>}
        <span class="space" />
        <span class="who" title="Owner of this session">{who.value?.owner}</span>
        <ThemeChoice />
        <button type="button" class="quiet" aria-label="Keys" onClick={keysHelp}>?</button>
        <button type="button" onClick={() => leave(() => void logOut())}>Log out</button>
      </header>
      <nav class={menu ? "open" : ""} aria-label="Pages">
        {pages.map((p) => (
          <a key={p.path} href={href([p.path])} aria-current={p === page ? "page" : undefined}>
            {p.title}
            {p.path === "approvals" && waiting > 0 && <span class="badge warn count">{waiting}</span>}
          </a>
        ))}
      </nav>
      <div class="unseen" role="status">{waiting > 0 && `${count(waiting, "request")} for your decision`}</div>
      <main id="main" tabIndex={-1}>
        <page.show parts={parts} />
      </main>
    </div>
  );
}

/** Another user of the host may have made the link, to see what is typed here. */
function Offer() {
  const other = offered.value;
  if (!other || !who.value) return null;
  return (
    <FormDialog title="Change who you are?" action={`Continue as ${shown(other.owner)}`} danger submit={offerTake} close={() => void offerLeave()}>
      <p>
        This tab is signed in as <b>{shown(who.value.owner)}</b>. The link that was opened signs it in as{" "}
        <b>{shown(other.owner)}</b>, who then sees what you do here.
      </p>
    </FormDialog>
  );
}

function App() {
  const open = who.value !== null;
  useEffect(() => {
    if (!open) return;
    void eventsRun();
    return pendingWatch();
  }, [open]);
  return (
    <>
      {open ? <Frame /> : <Locked />}
      <OpenedDialog />
      <Offer />
      <Toasts />
      <KeysOff />
    </>
  );
}

themeStart();
keysStart();
sessionLoad()
  .catch(() => (ended.value = "The daemon cannot be reached. Reload the page to try again."))
  .finally(() => render(<App />, document.getElementById("app")!));
