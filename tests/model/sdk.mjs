// node sdk.mjs FORMAT BASE_URL: one conversation of three turns with the vendor's own client; prints what it saw.
const [format, base] = process.argv.slice(2);
const schema = { type: "object", properties: { cmd: { type: "string" } } };
const out = { turns: [] };

async function anthropic() {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const client = new Anthropic({ apiKey: process.env.KEY, baseURL: base, maxRetries: 3 });
  const messages = [{ role: "user", content: "do the task" }];
  for (;;) {
    const request = { model: "m", max_tokens: 1000, messages, tools: [{ name: "exec", description: "run", input_schema: schema }] };
    const answer = out.turns.length % 2 ? await client.messages.create(request) : await client.messages.stream(request).finalMessage();
    const calls = answer.content.filter((b) => b.type === "tool_use");
    out.turns.push({
      text: answer.content.filter((b) => b.type === "text").map((b) => b.text).join(""),
      calls: calls.map((c) => [c.name, c.input]), stop: answer.stop_reason, out: answer.usage.output_tokens,
    });
    if (!calls.length) return;
    messages.push({ role: "assistant", content: answer.content });
    messages.push({ role: "user", content: calls.map((c) => ({ type: "tool_result", tool_use_id: c.id, content: "ran " + c.name })) });
  }
}

async function chat() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ apiKey: process.env.KEY, baseURL: base + "/v1", maxRetries: 3 });
  const messages = [{ role: "user", content: "do the task" }];
  const tools = [{ type: "function", function: { name: "exec", description: "run", parameters: schema } }];
  for (;;) {
    const request = { model: "m", messages, tools, max_completion_tokens: 1000 };
    const answer = out.turns.length % 2
      ? await client.chat.completions.create(request)
      : await client.chat.completions.stream({ ...request, stream_options: { include_usage: true } }).finalChatCompletion();
    const { message, finish_reason } = answer.choices[0];
    const calls = message.tool_calls ?? [];
    out.turns.push({
      text: message.content ?? "", calls: calls.map((c) => [c.function.name, JSON.parse(c.function.arguments)]),
      stop: finish_reason, out: answer.usage.completion_tokens,
    });
    if (!calls.length) return;
    messages.push(message);
    for (const c of calls) messages.push({ role: "tool", tool_call_id: c.id, content: "ran " + c.function.name });
  }
}

async function responses() {
  const { default: OpenAI } = await import("openai");
  const client = new OpenAI({ apiKey: process.env.KEY, baseURL: base + "/v1", maxRetries: 3 });
  const input = [{ role: "user", content: "do the task" }];
  const tools = [{ type: "function", name: "exec", description: "run", parameters: schema, strict: false }];
  for (;;) {
    const request = { model: "m", input, tools, max_output_tokens: 1000, store: false };
    const answer = out.turns.length % 2
      ? await client.responses.create(request) : await client.responses.stream(request).finalResponse();
    const calls = answer.output.filter((i) => i.type === "function_call");
    out.turns.push({
      text: answer.output.filter((i) => i.type === "message").flatMap((i) => i.content).map((c) => c.text).join(""),
      calls: calls.map((c) => [c.name, JSON.parse(c.arguments)]), stop: answer.status, out: answer.usage.output_tokens,
    });
    if (!calls.length) return;
    input.push(...answer.output);
    for (const c of calls) input.push({ type: "function_call_output", call_id: c.call_id, output: "ran " + c.name });
  }
}

try {
  await { anthropic, chat, responses }[format]();
} catch (e) {
  out.error = { status: e.status ?? null, message: String(e.message), name: e.constructor.name };
}
console.log(JSON.stringify(out));
