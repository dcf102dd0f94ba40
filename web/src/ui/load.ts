import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { onEvent, onReturn } from "../events";
import type { HostEvent } from "../types";

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  reload: () => Promise<void>; // ends when the new data is there, or the load failed
}

export const TOGETHER_MS = 200; // events that come together cause one load

/**
 * Loads something, and again after each event that `when` accepts, when a lost connection is back,
 * when an element of `deps` changes, and every `every_ms` while the page is visible. Old data stays
 * until new data is there. `keep`: a lost connection changes nothing, unless the load had failed.
 * An event that comes during a load causes one more after it. It does not cut the load off: of events
 * that come faster than answers, none would ever be shown.
 */
export function useLoad<T>(
  load: (signal: AbortSignal) => Promise<T>,
  deps: unknown[],
  when?: (event: HostEvent) => boolean,
  every_ms = 0,
  keep = false,
): Loaded<T> {
  const [state, setState] = useState<{ data?: T; error?: Error }>({});
  const running = useRef<AbortController>(undefined);
  const failed = useRef(false);
  const again = useRef(false); // an event came during the load
  const timer = useRef(0);
  const latest = useRef(load);
  latest.current = load;

  const reload = useCallback(() => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    failed.current = again.current = false;
    const end = (set: () => void) => {
      if (stop.signal.aborted) return;
      running.current = undefined;
      set();
      if (again.current) void reload();
    };
    return latest.current(stop.signal).then(
      (data) => end(() => setState({ data })),
      (error: Error) =>
        end(() => {
          failed.current = true;
          setState((old) => ({ ...old, error }));
        }),
    );
  }, []);

  useEffect(() => {
    setState({});
    void reload();
    const soon = () => {
      timer.current ||= window.setTimeout(() => {
        timer.current = 0;
        if (running.current) again.current = true;
        else void reload();
      }, TOGETHER_MS);
    };
    // A load that began before the connection was lost may never end.
    const stops = [onReturn(() => void ((!keep || failed.current) && reload())), onEvent((event) => when?.(event) && soon())];
    const poll = every_ms && setInterval(() => document.visibilityState === "visible" && soon(), every_ms);
    return () => {
      for (const stop of stops) stop();
      clearInterval(poll);
      clearTimeout(timer.current);
      timer.current = 0;
      running.current?.abort();
    };
  }, deps);

  return { data: state.data, error: state.error, reload };
}
