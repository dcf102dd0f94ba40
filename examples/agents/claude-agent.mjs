// An agent of the Claude Agent SDK whose only tools act in a computer of its own: node claude-agent.mjs "TASK".
// MODEL and ANTHROPIC_API_KEY say who thinks.
import { createSdkMcpServer, query, tool } from "@anthropic-ai/claude-agent-sdk";
import { Machine } from "carrel";
import { z } from "zod";

const machine = await Machine.create({ limits: { mem: "1G" }, ttl: "1h" });
try {
  const shell = tool("shell", "Run a shell command in your own Linux computer.", { command: z.string() }, async ({ command }) => {
    const { status, stdout, stderr } = await machine.exec(command, { timeout: "2m" });
    return { content: [{ type: "text", text: `${stdout}${stderr}[exit status ${status}]` }] };
  });
  const options = {
    model: process.env.MODEL,
    mcpServers: { computer: createSdkMcpServer({ name: "computer", tools: [shell] }) },
    allowedTools: ["mcp__computer__shell"],
    disallowedTools: ["Bash", "Edit", "Write", "Read", "Glob", "Grep", "WebFetch", "WebSearch", "Task"],
  };
  for await (const message of query({ prompt: process.argv[2], options })) {
    if (message.type === "result") console.log(message.result);
  }
  for (const { change, path } of (await machine.diff()).changes) console.log(change, path);
} finally {
  await machine.destroy();
}
