// Every page of the console: a row here, and a file beside this one.
import type { FunctionComponent } from "preact";
import { Machines } from "./machines";
import { ReviewPage } from "./review";

export interface Page {
  path: string; // first part of the route
  title: string;
  key: string; // `g` and this key
  show: FunctionComponent<{ parts: string[] }>; // parts of the route after the first
}

export const pages: Page[] = [
  { path: "machines", title: "Machines", key: "m", show: Machines },
  { path: "review", title: "Review", key: "v", show: ReviewPage },
];
