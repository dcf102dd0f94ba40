// Compiled, not run: the types of the package let this pass, and refuse each line below @ts-expect-error.
import { Client, Machine, type Command } from "carrel";

export async function good(client: Client, command: Command): Promise<number> {
  const machine = await Machine.create({ name: "a", limits: { mem: "1G" }, env: { A: "b" } }, client);
  const result = await machine.exec(command, { timeout: "1s" });
  const { changes } = await machine.diff("good");
  await machine.withOptions({ timeout: 5, signal: new AbortController().signal }).stats();
  for await (const event of machine.stream("true")) if (event.type === "exit") return event.exec.status;
  return result.status + changes.length;
}

export async function bad(client: Client): Promise<void> {
  // @ts-expect-error: no such field
  await Machine.create({ nme: "a" }, client);
  // @ts-expect-error: no such operation
  await client.call("machine_shows", {});
  // @ts-expect-error: a parameter is missing
  await client.call("machine_show", {});
  // @ts-expect-error: a state is one of a few words
  const same = (await client.machines())[0]!.view.state === "asleep";
  void same;
}
