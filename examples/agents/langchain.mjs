// An agent of LangChain with a computer: node langchain.mjs "TASK". MODEL and OPENAI_API_KEY say who thinks.
import { tool } from "@langchain/core/tools";
import { createReactAgent } from "@langchain/langgraph/prebuilt";
import { ChatOpenAI } from "@langchain/openai";
import { Machine } from "carrel";
import { z } from "zod";

const machine = await Machine.create({ limits: { mem: "1G" }, ttl: "1h" });
try {
  const shell = tool(async ({ command }) => {
    const { status, stdout, stderr } = await machine.exec(command, { timeout: "2m" });
    return `${stdout}${stderr}[exit status ${status}]`;
  }, {
    name: "shell",
    description: "Run a shell command in your own Linux computer.",
    schema: z.object({ command: z.string() }),
  });
  const llm = new ChatOpenAI({ model: process.env.MODEL, useResponsesApi: true, configuration: { baseURL: process.env.OPENAI_BASE_URL } });
  const agent = createReactAgent({ llm, tools: [shell] });
  const { messages } = await agent.invoke({ messages: [{ role: "user", content: process.argv[2] }] });
  console.log(messages.at(-1).text);
  for (const { change, path } of (await machine.diff()).changes) console.log(change, path);
} finally {
  await machine.destroy();
}
