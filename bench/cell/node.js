// The same measures as cell.c on node's V8: node [flags] node.js MODE FILE ARGS…
'use strict';
const fs = require('fs');

const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e3;
};
const wallUs = () => Number(process.hrtime.bigint()) / 1e3;
const median = (list) => list.sort((a, b) => a - b)[list.length >> 1];

// Resident pages, and the page tables that map them, which a wide reservation makes many of.
const residentNow = () => {
  const status = fs.readFileSync('/proc/self/status', 'latin1');
  return ['VmRSS', 'VmPTE'].map((key) => 1024 * Number(status.match(`${key}:\\s+(\\d+)`)[1]));
};

const modes = {
  run(bytes, n) {
    const { run } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
    run(1);
    const start = cpuMs();
    const result = run(Number(n));
    return `${result >>> 0} ${(cpuMs() - start).toFixed(4)}`;
  },
  // Patches the padded LEB128 at `offset`, so that no two rounds see the same bytes.
  first(bytes, offset, rounds) {
    const times = [];
    for (let i = 0; i < Number(rounds); i++) {
      for (let k = 0; k < 4; k++) bytes[Number(offset) + k] = 0x80 | ((i >> (7 * k)) & 0x7f);
      const start = wallUs();
      const made = new WebAssembly.Instance(new WebAssembly.Module(bytes));
      const result = made.exports.run(i);
      times.push(wallUs() - start);
      if (result !== 2 * i) throw new Error(`got ${result} in round ${i}`);
    }
    return median(times).toFixed(3);
  },
  validate(bytes, rounds) {
    const times = [];
    for (let i = 0; i < Number(rounds); i++) {
      const start = cpuMs();
      if (!WebAssembly.validate(bytes)) throw new Error('not valid');
      times.push(cpuMs() - start);
    }
    return [median(times), times[0]].map((ms) => (bytes.length / 1e3 / ms).toFixed(2)).join(' ');
  },
  instances(bytes, count) {
    const module = new WebAssembly.Module(bytes), kept = [];
    const make = () => {
      const made = new WebAssembly.Instance(module);
      made.exports.run(1);
      kept.push(made);
    };
    make();
    global.gc();
    const before = residentNow();
    for (let i = 0; i < Number(count); i++) make();
    global.gc();
    return residentNow().map((after, i) => ((after - before[i]) / Number(count)).toFixed(0)).join(' ');
  },
};

const [mode, file, ...args] = process.argv.slice(2);
console.log(modes[mode](new Uint8Array(fs.readFileSync(file)), ...args));
