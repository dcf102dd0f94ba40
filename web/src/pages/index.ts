// Every page of the console: a row here, and a file beside this one.
import type { FunctionComponent } from "preact";
import { Approvals } from "./approvals";
import { Machines } from "./machines";
import { ReviewPage } from "./review";
import { Runs } from "./runs";
import "./more.css";

export interface Page {
  path: string; // first part of the route
  title: string;
  key: string; // `g` and this key
  show: FunctionComponent<{ parts: string[] }>; // parts of the route after the first
}

export const pages: Page[] = [
  { path: "machines", title: "Machines", key: "m", show: Machines },
  { path: "review", title: "Review", key: "v", show: ReviewPage },
  { path: "approvals", title: "Approvals", key: "a", show: Approvals },
  { path: "runs", title: "Runs", key: "r", show: Runs },
];
