// URLs of exposed ports with their tokens, which the daemon tells once. They stay in this tab until it
// logs out, as the token of the session does.
const KEY = "carrel.ports";

function all(): Record<string, string> {
  return JSON.parse(sessionStorage.getItem(KEY) ?? "{}") as Record<string, string>;
}

export function portUrl(machine: string, port: number): string | undefined {
  return all()[`${machine}:${port}`];
}

export function portUrlKeep(machine: string, port: number, url: string): void {
  sessionStorage.setItem(KEY, JSON.stringify({ ...all(), [`${machine}:${port}`]: url }));
}

export function portUrlForget(machine: string, port: number): void {
  const { [`${machine}:${port}`]: _, ...rest } = all();
  sessionStorage.setItem(KEY, JSON.stringify(rest));
}

export function portUrlsForget(): void {
  sessionStorage.removeItem(KEY);
}
