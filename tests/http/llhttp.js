// The same as codec.c, said by Node's parser (llhttp), which is strict unless told otherwise.
'use strict';
const { HTTPParser, methods } = require('_http_common');

function read(kind, bytes) {
  const messages = [];
  let end = 'incomplete';
  const parser = new HTTPParser();
  parser.initialize(kind ? HTTPParser.RESPONSE : HTTPParser.REQUEST, {});
  let early = '';  // the target, when the fields came in more than one batch
  parser[HTTPParser.kOnHeaders] = (fields, url) => { early += url; };
  parser[HTTPParser.kOnHeadersComplete] = (major, minor, fields, method, url, status, reason, upgrade) => {
    messages.push({
      first: kind ? status : Buffer.from(methods[method] || `?${method}`).toString('hex'),
      target: kind ? '' : Buffer.from(url === undefined ? early : url, 'latin1').toString('hex'),
      upgrade: !!upgrade, body: '', whole: false, version: [major, minor],
    });
    return 0;
  };
  parser[HTTPParser.kOnBody] = (b) => { messages[messages.length - 1].body += b.toString('hex'); };
  parser[HTTPParser.kOnMessageComplete] = () => {
    messages[messages.length - 1].whole = true;
    early = '';
  };
  let r = parser.execute(bytes);
  if (!(r instanceof Error)) r = parser.finish() || r;
  if (r instanceof Error) end = r.code || r.message;
  else end = '';
  parser.free && parser.free();
  return { messages, end };
}

const input = require('fs').readFileSync(0);
const out = [];
for (let at = 0; at < input.length;) {
  const n = input.readUInt32BE(at + 1);
  out.push(JSON.stringify(read(input[at], Buffer.from(input.subarray(at + 5, at + 5 + n)))));
  at += 5 + n;
}
process.stdout.write(out.join('\n') + '\n');
