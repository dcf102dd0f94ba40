// A program that knows only E2B_DOMAIN. Its names are resolved as a hosts file would do it.
import assert from 'node:assert/strict'
import dns from 'node:dns'
import { createRequire } from 'node:module'

const resolve = (name, options, done) => {
  const then = done ?? options
  assert.ok(name.endsWith('.boxes.example.com'), `a request to ${name}`)
  return options?.all ? then(null, [{ address: '127.0.0.1', family: 4 }]) : then(null, '127.0.0.1', 4)
}
createRequire(import.meta.url)('node:dns').lookup = resolve
dns.lookup = resolve

const { Sandbox } = await import('@e2b/code-interpreter')
const s = await Sandbox.create({ timeoutMs: 120000 })
assert.ok(s.getHost(3000).startsWith(`3000-${s.sandboxId}.boxes.example.com:`))
assert.equal((await s.commands.run('echo by name')).stdout, 'by name\n')
await s.files.write('/tmp/large', 'x'.repeat(3_000_000))
assert.equal((await s.files.read('/tmp/large')).length, 3_000_000)
assert.ok((await s.downloadUrl('/tmp/large', { useSignatureExpiration: 60 })).startsWith(`https://49983-${s.sandboxId}.`))
assert.equal((await (await fetch(await s.downloadUrl('/tmp/large'))).text()).length, 3_000_000)
assert.equal((await s.runCode('6 * 7')).text, '42')
await s.commands.run('python3 -m http.server 3000', { background: true })
await s.commands.run('until curl -s localhost:3000; do sleep .1; done')
assert.equal((await fetch(`https://${s.getHost(3000)}/`)).status, 200)
assert.equal(await s.isRunning(), true)
await s.kill()
assert.equal(await s.isRunning(), false)
console.log('done')
process.exit(0)
