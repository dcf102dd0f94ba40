// The child of javascript_driver.js: runs code as the console of node does, with `await` at the top.
const fs = require('fs')
const repl = require('repl')
const net = require('net')
const util = require('util')
const { createRequire } = require('module')
const [REQUESTS, ANSWERS, HEARD] = [3, 4, 5]
const channel = new net.Socket({ fd: REQUESTS, readable: true, writable: false })
const BYTES = 6 << 20
const FORMATS = ['html', 'markdown', 'svg', 'png', 'jpeg', 'pdf', 'latex', 'json', 'javascript']
const MEDIA = {
  'text/plain': 'text', 'text/html': 'html', 'text/markdown': 'markdown', 'image/svg+xml': 'svg',
  'image/png': 'png', 'image/jpeg': 'jpeg', 'application/pdf': 'pdf', 'text/latex': 'latex',
  'application/json': 'json', 'application/javascript': 'javascript',
}
let count = 0
let interrupt = null
let queue = Promise.resolve()

function again(call) {
  for (;;) {
    try {
      return call()
    } catch (error) {
      if (error.code !== 'EINTR') throw error
    }
  }
}

// What is printed after an event comes after it: so the parent must have heard it.
function send(message) {
  const data = Buffer.from(JSON.stringify(message) + '\n')
  for (let at = 0; at < data.length;) at += again(() => fs.writeSync(ANSWERS, data, at))
  if (message.event) again(() => fs.readSync(HEARD, Buffer.alloc(1)))
}
const clean = (text, most) => String(text).replaceAll('\0', '\ufffd').toWellFormed?.().slice(0, most) ??
  Buffer.from(String(text).replaceAll('\0', '\ufffd')).toString().slice(0, most)

// ---- results ----

// As text, and in the formats that the method Symbol.for('Jupyter.display') of a value names.
async function formats(value) {
  const text = util.inspect(value)
  const found = { text: /^(['"`]).*\1$/s.test(text) ? text.slice(1, -1) : text }
  const shows = value?.[Symbol.for('Jupyter.display')]
  if (typeof shows === 'function') {
    for (const [media, content] of Object.entries((await shows.call(value)) ?? {}))
      found[MEDIA[media] ?? media] = content
  } else if (Array.isArray(value) || (value && Object.getPrototypeOf(value) === Object.prototype)) {
    found.json = value
  }
  const kept = {}
  let size = 0
  for (const [name, content] of Object.entries(found)) {
    let json
    try {
      json = JSON.stringify(content instanceof Uint8Array ? Buffer.from(content).toString('base64') : content)
    } catch {
      continue // it has no form as JSON
    }
    if (json === undefined) continue
    json = json.replaceAll('\\u0000', '\ufffd')
    const values = json.split(/[,[{]/).length
    if (size + json.length > BYTES || values > 150000) {
      kept.text = `${kept.text ?? ''}\n[${name} left out: it is too large]`
    } else {
      kept[name] = JSON.parse(json)
      size += json.length
    }
  }
  return kept
}

async function show(value, main = false) {
  send({ event: 'result', main, data: await formats(value) })
}

// ---- code ----

const console_ = repl.start({
  input: new (require('stream').PassThrough)(), output: process.stderr, prompt: '', terminal: false,
  useGlobal: true, breakEvalOnSigint: true,
})
globalThis.display = async (...values) => {
  for (const value of values) await show(value)
}

// Static imports as dynamic ones, which the console of node knows. They may come again.
function imports(code) {
  return code.replace(/^([ \t]*)import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s*as\s+([\w$]+)|\{([^}]*)\})?\s*from\s*(['"][^'"\n]+['"])/gm,
    (all, space, one, every, some, from) => {
      const parts = [one && `default: ${one}`, some?.replace(/\s+as\s+/g, ': ')].filter(Boolean).join(', ')
      const load = `await import(${from})`
      if (!every) return `${space}var { ${parts} } = ${load}`
      return `${space}var ${every} = ${load}` + (one ? `; var { default: ${one} } = ${every}` : '')
    }).replace(/^([ \t]*)import\s*(['"][^'"\n]+['"])/gm, '$1await import($2)')
}

function plainScript(code) {
  const { stripTypeScriptTypes } = require('module')
  if (stripTypeScriptTypes) return stripTypeScriptTypes(code, { mode: 'transform' })
  const places = ['/usr/share/nodejs', '/usr/lib/node_modules', '/usr/local/lib/node_modules']
  for (const name of ['typescript', ...places.map((place) => place + '/typescript')]) {
    let ts
    try {
      ts = createRequire(process.cwd() + '/')(name)
    } catch {
      continue
    }
    const compilerOptions = { module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2020, importsNotUsedAsValues: 1, preserveValueImports: true }
    return ts.transpileModule(code, { compilerOptions }).outputText
  }
  throw new Error('TypeScript needs node 22.13, or the package typescript')
}

// The console tells its domain what code throws at once, and what throws after its end.
let fail = null
console_._domain.removeAllListeners('error')
console_._domain.on('error', (error) => {
  if (fail) fail(error)
  else process.stderr.write(trace(error) + '\n')
})

// While code runs at once, the console takes SIGINT, but only if nobody else listens to it.
const stop = () => interrupt?.()
const once = (code) => new Promise((resolve, reject) => {
  fail = reject
  process.off('SIGINT', stop)
  console_.eval(code + '\n', console_.context, `<javascript ${count}>`, (error, value) => {
    if (error) reject(error instanceof repl.Recoverable ? error.err : error)
    else resolve({ value }) // a value that is a promise stays one
  })
  process.on('SIGINT', stop)
})

async function evaluate(code) {
  try {
    return await once(code)
  } catch (error) {
    if (!(error instanceof SyntaxError) || !/import statement/.test(error.message)) throw error
    return await once(imports(code))
  } finally {
    fail = null
  }
}

function trace(error) {
  const own = /\((node:|\[eval\])|at (node:|\[eval\])|node:internal|at new Promise \(<anonymous>\)/
  return String(error?.stack ?? error).split('\n').filter((line) => !own.test(line)).join('\n')
}

function failed(error) {
  const is = error !== null && typeof error === 'object' && 'message' in error
  send({
    event: 'error',
    name: clean((is && error.name) || 'Error', 1000),
    value: clean(is ? error.message : util.inspect(error), 64 << 10),
    traceback: clean(trace(error), 256 << 10),
  })
}

const isStopped = (error) => error?.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED'

async function run({ code, env, typescript }) {
  const before = Object.keys(env).map((name) => [name, process.env[name]])
  let status = 'ok'
  count++
  Object.assign(process.env, env)
  try {
    const stopped = new Promise((_, reject) => {
      interrupt = () => reject(Object.assign(new Error('the code was interrupted'), { code: 'ERR_SCRIPT_EXECUTION_INTERRUPTED' }))
    })
    stopped.catch(() => {})
    const work = async () => {
      let { value } = await evaluate(typescript ? plainScript(code) : code)
      value = await value // as notebooks do with a promise in the last line
      if (value !== undefined) await show(value, true)
    }
    await Promise.race([work(), stopped])
  } catch (error) {
    status = isStopped(error) ? 'interrupted' : 'error'
    failed(error)
  }
  interrupt = null
  for (const [name, value] of before)
    if (value === undefined) delete process.env[name]
    else process.env[name] = value
  send({ status })
}

process.on('SIGINT', stop)
process.on('unhandledRejection', (error) => process.stderr.write(trace(error) + '\n'))
let rest = ''
channel.setEncoding('utf8')
channel.on('data', (data) => {
  const lines = (rest + data).split('\n')
  rest = lines.pop()
  for (const line of lines) queue = queue.then(() => run(JSON.parse(line)))
})
channel.on('end', () => process.exit())
