// Dark or light: as the system, until the user chooses.
import { effect, signal } from "@preact/signals";

export type Theme = "system" | "dark" | "light";

const KEY = "carrel.theme";

export const theme = signal<Theme>((localStorage.getItem(KEY) as Theme | null) ?? "system");

const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
export const dark = signal(false);

function apply(): void {
  dark.value = theme.value === "system" ? systemDark.matches : theme.value === "dark";
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
}

export function themeStart(): void {
  effect(apply);
  systemDark.addEventListener("change", apply);
}

export function themeSet(to: Theme): void {
  localStorage.setItem(KEY, to);
  theme.value = to;
}
