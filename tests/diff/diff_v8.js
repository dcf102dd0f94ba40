// Replays the calls of a diff-run transcript on V8: node diff_v8.js < records > transcript
// A record is a line "SEED BYTES LENGTH", the module in BYTES bytes and its transcript in LENGTH bytes.
'use strict';
const fs = require('fs');

const word = new DataView(new ArrayBuffer(8));
const hex = (n) => BigInt.asUintN(64, n).toString(16).padStart(16, '0');

// Types are not visible from here, so values are printed by the type the transcript had at that place.
const print = {
  i32: (v) => 'i32:' + (v >>> 0).toString(16).padStart(8, '0'),
  i64: (v) => 'i64:' + hex(v),
  f32: (v) => (word.setFloat32(0, v), 'f32:' + (v !== v ? 'nan' : word.getUint32(0).toString(16).padStart(8, '0'))),
  f64: (v) => (word.setFloat64(0, v), 'f64:' + (v !== v ? 'nan' : hex(word.getBigUint64(0)))),
  ref: (v) => (v === null ? 'null' : 'ref'),
};
const read = {
  i32: (s) => parseInt(s, 16) | 0,
  i64: (s) => BigInt.asIntN(64, BigInt('0x' + s)),
  f32: (s) => (word.setUint32(0, parseInt(s, 16)), word.getFloat32(0)),
  f64: (s) => (word.setBigUint64(0, BigInt('0x' + s)), word.getFloat64(0)),
};
const typeOf = (token) => (token === undefined || token === 'null' || token === 'ref' ? 'ref' : token.slice(0, 3));
const parse = (token) => (token.includes(':') ? read[typeOf(token)](token.slice(4)) : null);

// V8's words for a trap -> the specification's.
const traps = [
  [/unreachable/, 'unreachable'],
  [/divide by zero|remainder by zero/, 'integer divide by zero'],
  [/divide result unrepresentable/, 'integer overflow'],
  [/float unrepresentable/, 'float range'],
  [/memory access out of bounds|data segment.*out of bounds/, 'out of bounds memory access'],
  [/table index is out of bounds|table access out of bounds|element segment.*out of bounds|table initializer.*out of bounds/, 'table'],
  [/null function or function signature mismatch/, 'indirect call'],
  [/type incompatibility when transforming/, 'v128 at the border'],
  [/dereferencing a null pointer|rethrowing null value/, 'null reference'],
  [/illegal cast/, 'cast failure'],
  [/array element access out of bounds|array index out of bounds/, 'out of bounds array access'],
  [/requested new array is too large/, 'out of bounds memory access'],
];
const trapText = (e) => {
  if (e instanceof WebAssembly.Exception) return 'exception';
  if (e instanceof RangeError) return 'call stack exhausted';
  const row = traps.find(([pattern]) => pattern.test(e.message));
  return row ? row[1] : `${e.name}: ${e.message}`;
};

const lines = [];
const log = (type) => (v) => { lines.push('log ' + print[type](v)); };
const imports = {
  'fuzzing-support': {
    'log-i32': log('i32'), 'log-i64': log('i64'), 'log-f32': log('f32'), 'log-f64': log('f64'), 'log-v128': () => {},
  },
};

const attempt = (f, wanted) => {
  try {
    const got = f();
    const values = got === undefined && wanted.length === 0 ? [] : Array.isArray(got) ? got : [got];
    lines.push(['done', ...values.map((v, i) => print[typeOf(wanted[i])](v))].join(' '));
    return true;
  } catch (e) {
    lines.push('trap ' + trapText(e));
    return false;
  }
};

const hashMemory = (name, memory) => {
  const words = new Uint32Array(memory.buffer); // both CPUs are little-endian
  let hash = 0;
  for (let i = 0; i < words.length; i++) {
    hash ^= Math.imul(words[i], 0xcc9e2d51);
    hash = (Math.imul((hash << 13) | (hash >>> 19), 5) + 0xe6546b64) | 0;
  }
  return `memory ${name} ${memory.buffer.byteLength} ${(hash >>> 0).toString(16).padStart(8, '0')}`;
};

// The results that the transcript has for the call at line i, to know their types.
const wantedAt = (input, i) => {
  while (++i < input.length && !/^(done|trap|call|module)/.test(input[i]));
  return i < input.length && input[i].startsWith('done') ? input[i].split(' ').slice(1) : [];
};

const instantiate = (bytes) => {
  let instance = null;
  attempt(() => { instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), imports); }, []);
  return instance;
};

const replay = (bytes, input) => {
  const instance = instantiate(bytes);
  input.forEach((line, i) => {
    const [kind, name, ...args] = line.split(' ');
    if (kind === 'call' && instance) {
      lines.push(line);
      attempt(() => instance.exports[name](...args.map(parse)), wantedAt(input, i));
    }
    if (kind === 'memory' && instance) lines.push(hashMemory(name, instance.exports[name]));
  });
};

const records = fs.readFileSync(0);
for (let at = 0; at < records.length;) {
  const end = records.indexOf('\n', at);
  const [seed, size, length] = records.toString('latin1', at, end).split(' ').map(Number);
  const text = end + 1 + size;
  lines.push(`module ${seed}`);
  replay(records.subarray(end + 1, text), records.toString('utf8', text, text + length).split('\n'));
  at = text + length;
}
console.log(lines.join('\n'));
