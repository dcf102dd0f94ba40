// An agent of the OpenAI Agents SDK with a computer that it can set back: node openai-agents.mjs "TASK".
// MODEL and OPENAI_API_KEY say who thinks.
import { Agent, run, setTracingDisabled, tool } from "@openai/agents";
import { Machine } from "carrel";
import { z } from "zod";

setTracingDisabled(true);
const machine = await Machine.create({ limits: { mem: "1G" }, ttl: "1h" });
let before = await machine.snapshot();
try {
  const shell = tool({
    name: "shell",
    description: "Run a shell command in your own Linux computer.",
    parameters: z.object({ command: z.string() }),
    execute: async ({ command }) => {
      before = await machine.snapshot();
      const { status, stdout, stderr } = await machine.exec(command, { timeout: "2m" });
      return `${stdout}${stderr}[exit status ${status}]`;
    },
  });
  const undo = tool({
    name: "undo",
    description: "Set the files of your computer back to those before the last command.",
    parameters: z.object({}),
    execute: async () => {
      await machine.rewind(before);
      return "the files are as they were";
    },
  });
  const agent = new Agent({ name: "Worker", instructions: "Work in your computer.", model: process.env.MODEL, tools: [shell, undo] });
  console.log((await run(agent, process.argv[2])).finalOutput);
  for (const { change, path } of (await machine.diff()).changes) console.log(change, path);
} finally {
  await machine.destroy();
}
