// A screen of xterm.js, in a chunk of its own: only pages with terminals load it.
import "./strict";
import { FitAddon } from "@xterm/addon-fit";
import { type ITerminalOptions, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

const SCROLLBACK = 5000; // lines; the memory of a terminal is bounded by it

export interface Screen {
  terminal: Terminal;
  fit: () => void;
  leave: (to: () => void) => void; // what the keys do that leave the terminal, which takes Tab for itself
  paint: (dark: boolean) => void;
  dispose: () => void;
}

const themes = {
  dark: { background: "#10131a", foreground: "#e3e7ef", cursor: "#7aa7ff", selectionBackground: "#33528f" },
  light: { background: "#ffffff", foreground: "#1b2130", cursor: "#1d5fd1", selectionBackground: "#b9d0f7" },
};

export function screenOpen(parent: HTMLElement, dark: boolean): Screen {
  const options: ITerminalOptions = {
    fontFamily: "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace",
    fontSize: 13,
    linkHandler: { activate: () => {} }, // a machine opens no page and no dialog
    minimumContrastRatio: 4.5,
    scrollback: SCROLLBACK,
    theme: themes[dark ? "dark" : "light"],
  };
  const terminal = new Terminal(options);
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(parent);
  fit.fit();
  return {
    terminal,
    fit: () => fit.fit(),
    leave: (to) =>
      terminal.attachCustomKeyEventHandler((e) => {
        if (!e.shiftKey || e.key !== "Escape") return true;
        if (e.type === "keydown") to();
        return false;
      }),
    paint: (to) => {
      terminal.options.theme = themes[to ? "dark" : "light"];
    },
    dispose: () => terminal.dispose(),
  };
}
