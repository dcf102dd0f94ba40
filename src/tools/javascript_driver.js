// Runs JavaScript in a machine. This process exchanges lines of JSON with the daemon. The child
// (javascript_child.js) runs the code and keeps its variables: so code that ends or blocks it does
// not break the exchange. Nothing here is trusted: the daemon checks every answer.
const { spawn } = require('child_process')
const { StringDecoder } = require('string_decoder')

const [REQUESTS, ANSWERS, HEARD] = [3, 4, 5]
const waiting = []
let current = null
let stopping = null
let count = 0

function tell(message) {
  const data = Buffer.from(JSON.stringify({ ...message, id: current.id }) + '\n')
  for (let at = 0; at < data.length;) {
    try {
      at += require('fs').writeSync(1, data, at)
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2) // the daemon reads at its pace
    }
  }
}

function end(answer) {
  for (const stream of [child.stdout, child.stderr]) stream.drain()
  tell(answer)
  clearInterval(stopping)
  current = stopping = null
  setImmediate(begin)
}

function begin() {
  if (current || !waiting.length) return
  current = waiting.shift()
  if (current.ping) {
    end({ status: 'ok' })
  } else {
    const { code, env, typescript } = current
    tell({ event: 'count', count: ++count })
    child.stdio[REQUESTS].write(JSON.stringify({ code, env, typescript }) + '\n')
  }
}

function take(line) {
  let request
  try {
    request = JSON.parse(line)
  } catch {
    return // the rest of a line that a killed daemon began
  }
  if (!request.interrupt) {
    waiting.push(request)
    begin()
  } else if (current && !stopping) {
    const stop = () => child.kill('SIGINT')
    stopping = setInterval(stop, 500) // the code may have caught the first signal
    stop()
  }
}

function lines(stream, each) {
  let parts = []
  stream.on('data', (data) => {
    for (let at; (at = data.indexOf(10)) >= 0; data = data.subarray(at + 1)) {
      each(Buffer.concat([...parts, data.subarray(0, at)]).toString())
      parts = []
    }
    if (data.length) parts.push(data)
  })
}

// What the code prints is told as it comes. drain() reads what has come already: it precedes what
// is told next. What other processes print between two requests is dropped.
function live(stream, name) {
  const decoder = new StringDecoder('utf8')
  const add = (data) => {
    const text = decoder.write(data).replaceAll('\0', '\ufffd')
    if (current && text) tell({ event: name, text })
  }
  stream.on('data', add)
  stream.drain = () => {
    const fd = stream._handle?.fd
    if (fd === undefined || fd < 0) return
    const piece = Buffer.alloc(65536)
    for (let i = 0; i < 64; i++) {
      try {
        const n = require('fs').readSync(fd, piece)
        if (!n) return
        add(piece.subarray(0, n))
      } catch {
        return // nothing more has come
      }
    }
  }
}

// In a function, because code would otherwise see its names and could not declare the same ones.
const child = spawn(process.execPath, ['--no-warnings', '-e', `(() => {${CHILD}\n})()`], {
  stdio: ['ignore', 'pipe', 'pipe', 'pipe', 'pipe', 'pipe'],
  detached: true,
})
live(child.stdout, 'stdout')
live(child.stderr, 'stderr')
lines(child.stdio[ANSWERS], (line) => {
  const answer = JSON.parse(line)
  for (const stream of [child.stdout, child.stderr]) stream.drain()
  if (current && !answer.event) end(answer)
  else if (current) tell(answer)
  if (answer.event) child.stdio[HEARD].write('\n')
})
for (const fd of [REQUESTS, ANSWERS, HEARD]) child.stdio[fd].on('error', () => {}) // its end follows
child.on('exit', (code, signal) => {
  const error = 'the interpreter ended with ' + (signal ? 'signal ' + signal : 'exit code ' + code)
  if (current) tell({ status: 'died', error })
  process.exit()
})
process.on('SIGINT', () => {})
lines(process.stdin, take)
process.stdin.on('end', () => {
  process.kill(-child.pid, 'SIGKILL')
  process.exit()
})
