// Prints what both packages export: classes with their static methods and methods, and functions. Objects of classes
// that are not exported come from a sandbox.
import * as e2b from 'e2b'
import * as interpreter from '@e2b/code-interpreter'

const found = {}
const add = (name, k) => (found[name] ??= new Set()).add(k)
function methods(name, prototype) {
  for (let p = prototype; p && p !== Object.prototype; p = Object.getPrototypeOf(p))
    for (const [k, d] of Object.entries(Object.getOwnPropertyDescriptors(p)))
      if (k !== 'constructor' && (d.get || typeof d.value === 'function')) add(name, k)
}
function walk(name, c) {
  add(name, 'new')
  for (let p = c; p && p !== Function.prototype; p = Object.getPrototypeOf(p))
    for (const k of Object.getOwnPropertyNames(p)) if (k !== 'prototype' && typeof p[k] === 'function') add(name, k)
  methods(name, c.prototype)
}
for (const module of [e2b, interpreter])
  for (const [name, value] of Object.entries(module))
    if (typeof value === 'function' && !['default', 'TemplateBase'].includes(name) && !(value.prototype instanceof Error)) walk(name, value)
const s = await interpreter.Sandbox.create({ timeoutMs: 120000 })
const handle = await s.commands.run('sleep 1000', { background: true })
const watch = await s.files.watchDir('/tmp', () => {})
for (const [name, o] of Object.entries({ Filesystem: s.files, Commands: s.commands, Pty: s.pty, CommandHandle: handle, WatchHandle: watch,
  Paginator: interpreter.Sandbox.list() }))
  methods(name, Object.getPrototypeOf(o))
await s.kill()
console.log(JSON.stringify(Object.fromEntries(Object.entries(found).map(([name, all]) => [name, [...all].sort()]))))
process.exit(0)
