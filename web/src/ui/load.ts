import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { onEvent, onReturn } from "../events";
import type { HostEvent } from "../types";

export interface Loaded<T> {
  data: T | undefined;
  error: Error | undefined;
  reload: () => void;
}

export const TOGETHER_MS = 200; // events that come together cause one load

/**
 * Loads something, and again after each event that `when` accepts, when a lost connection is back,
 * when an element of `deps` changes, and every `every_ms` while the page is visible. Old data stays
 * until new data is there. `keep`: a lost connection changes nothing, unless the load had failed.
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
  const timer = useRef(0);
  const latest = useRef(load);
  latest.current = load;

  const reload = useCallback(() => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    failed.current = false;
    latest.current(stop.signal).then(
      (data) => !stop.signal.aborted && setState({ data }),
      (error: Error) => {
        if (stop.signal.aborted) return;
        failed.current = true;
        setState((old) => ({ ...old, error }));
      },
    );
  }, []);

  useEffect(() => {
    setState({});
    reload();
    const soon = () => {
      if (timer.current) return;
      timer.current = window.setTimeout(() => {
        timer.current = 0;
        reload();
      }, TOGETHER_MS);
    };
    const stops = [onReturn(() => (!keep || failed.current) && soon()), onEvent((event) => when?.(event) && soon())];
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
