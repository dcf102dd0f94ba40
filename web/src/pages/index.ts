// Every page of the console: a row here, and a file beside this one.
import type { FunctionComponent } from "preact";
import { Approvals } from "./approvals";
import { Audit } from "./audit";
import { Host } from "./host";
import { Images } from "./images";
import { Machines } from "./machines";
import { Models } from "./models";
import { ReviewPage } from "./review";
import { Runs } from "./runs";
import { Secrets } from "./secrets";
import { Tokens } from "./tokens";
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
  { path: "audit", title: "Audit", key: "j", show: Audit },
  { path: "models", title: "Models", key: "o", show: Models },
  { path: "images", title: "Images", key: "i", show: Images },
  { path: "secrets", title: "Secrets", key: "s", show: Secrets },
  { path: "tokens", title: "Tokens", key: "t", show: Tokens },
  { path: "host", title: "Host", key: "h", show: Host },
];
