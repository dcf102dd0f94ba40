// Every AI agent gets its own computer: a thin client of the Carrel daemon.
export { Client, type ClientOptions, type Params } from "./client.js";
export { TimeoutError, type CallOptions } from "./limit.js";
export { Machine, type Contender, type StepRef } from "./machine.js";
export { Files } from "./files.js";
export { Process } from "./process.js";
export { eventBytes, fetchPort, Result, type Command, type ExecFields } from "./result.js";
export { CarrelError, ConnectionError, type Fetch } from "./transport.js";
export * as types from "./types.js";
