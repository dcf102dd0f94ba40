// Each case uses the real SDK as a program would. Prints a line of JSON for each: its name, and the error if it failed.
import assert from 'node:assert/strict'
import http from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { Sandbox } from 'e2b'

// What is sure to come is waited for, however busy the host is.
async function until(condition) {
  const end = Date.now() + 60000
  while (!(await condition())) {
    assert.ok(Date.now() < end, 'it did not come true')
    await sleep(30)
  }
}

const named = (name) => (error) => {
  assert.equal(error.name, name, error.message)
  return true
}

export const cases = {
  async command_has_output_and_status(s) {
    const r = await s.commands.run('echo out; echo $FOO; echo err >&2')
    assert.deepEqual([r.stdout, r.stderr, r.exitCode], ['out\nbar\n', 'err\n', 0])
    await assert.rejects(s.commands.run('exit 3'), (e) => named('CommandExitError')(e) && e.exitCode === 3)
  },
  async command_has_user_directory_and_variables(s) {
    const r = await s.commands.run('pwd; id -un; echo $A', { cwd: '/tmp', user: 'root', envs: { A: '1' } })
    assert.equal(r.stdout, '/tmp\nroot\n1\n')
    await assert.rejects(s.commands.run('pwd', { cwd: '/none' }), named('InvalidArgumentError'))
    await assert.rejects(s.commands.run('pwd', { user: 'nope' }), named('AuthenticationError'))
  },
  async output_comes_while_the_command_runs(s) {
    let out = ''
    await s.commands.run('for i in 1 2 3; do echo $i; done', { onStdout: (data) => { out += data } })
    assert.equal(out, '1\n2\n3\n')
  },
  async command_in_the_background_is_listed_and_killed(s) {
    const h = await s.commands.run('sleep 1000', { background: true })
    assert.ok((await s.commands.list()).some((p) => p.pid === h.pid))
    assert.equal(await h.kill(), true)
    await assert.rejects(h.wait(), named('CommandExitError'))
    assert.equal(await s.commands.kill(h.pid), false)
  },
  async input_reaches_the_command(s) {
    const h = await s.commands.run('cat', { background: true, stdin: true })
    await s.commands.sendStdin(h.pid, 'some ')
    await s.commands.sendStdin(h.pid, 'text')
    await s.commands.closeStdin(h.pid)
    assert.equal((await h.wait()).stdout, 'some text')
  },
  async command_is_followed_by_a_second_client(s) {
    const h = await s.commands.run('read; echo late', { background: true, stdin: true })
    const second = await s.commands.connect(h.pid)
    await h.disconnect()
    await s.commands.sendStdin(h.pid, '\n')
    assert.equal((await second.wait()).stdout, 'late\n')
  },
  async time_limit_of_a_command(s) {
    await assert.rejects(s.commands.run('sleep 1000', { timeoutMs: 500 }), named('TimeoutError'))
  },
  async files_in_all_formats(s) {
    assert.equal((await s.files.write('formats/text', 'text')).path, '/home/user/formats/text')
    assert.equal(await s.files.read('formats/text'), 'text')
    await s.files.write('formats/bytes', new Uint8Array([1, 2, 255]).buffer)
    assert.deepEqual([...(await s.files.read('formats/bytes', { format: 'bytes' }))], [1, 2, 255])
    assert.equal((await s.files.read('formats/bytes', { format: 'blob' })).size, 3)
    let streamed = ''
    for await (const piece of await s.files.read('formats/text', { format: 'stream' })) streamed += Buffer.from(piece)
    assert.equal(streamed, 'text')
  },
  async files_written_in_all_ways(s) {
    const both = await s.files.write([{ path: 'ways/1', data: 'one' }, { path: 'ways/a/2', data: 'two' }])
    assert.deepEqual(both.map((f) => f.path), ['/home/user/ways/1', '/home/user/ways/a/2'])
    assert.deepEqual(await s.files.write([]), [])
    await s.files.write('ways/stream', new Blob(['stream']).stream())
    await s.files.write('ways/raw', 'raw', { useOctetStream: true })
    await s.files.write('ways/packed', 'x'.repeat(100000), { gzip: true })
    assert.equal(await s.files.read('ways/stream'), 'stream')
    assert.equal(await s.files.read('ways/raw'), 'raw')
    assert.equal((await s.files.read('ways/packed', { gzip: true })).length, 100000)
  },
  async files_are_listed_moved_and_removed(s) {
    assert.equal(await s.files.makeDir('tree/x/y'), true)
    assert.equal(await s.files.makeDir('tree'), false)
    const entries = await s.files.list('tree', { depth: 2 })
    assert.deepEqual(entries.map((e) => [e.path, e.type]), [['/home/user/tree/x', 'dir'], ['/home/user/tree/x/y', 'dir']])
    await s.files.write('tree/old', 'text')
    assert.equal((await s.files.rename('tree/old', 'tree/new')).path, '/home/user/tree/new')
    assert.equal(await s.files.exists('tree/old'), false)
    const info = await s.files.getInfo('tree/new')
    assert.deepEqual([info.size, info.owner, info.modifiedTime instanceof Date], [4, 'user', true])
    await s.files.remove('tree')
    await assert.rejects(s.files.read('tree/new'), named('FileNotFoundError'))
  },
  async directory_is_watched(s) {
    await s.files.makeDir('watched/below')
    for (const [recursive, path, name] of [[false, 'watched/a', 'a'], [true, 'watched/below/b', 'below/b']]) {
      const seen = []
      const watch = await s.files.watchDir('watched', (event) => seen.push(event), { recursive })
      await s.files.write(path, 'text')
      await until(() => seen.some((event) => event.name === name && event.type === 'write'))
      await watch.stop()
    }
  },
  async signed_addresses_of_files(s) {
    const form = new FormData()
    form.append('file', 'content')
    const up = await fetch(await s.uploadUrl('signed', { useSignatureExpiration: 1000 }), { method: 'POST', body: form })
    assert.equal(up.status, 200)
    assert.equal(await (await fetch(await s.downloadUrl('signed'))).text(), 'content')
    const forged = (await s.downloadUrl('signed')).replace('signature=v1_', 'signature=v1_x')
    assert.equal((await fetch(forged)).status, 401)
  },
  async terminal(s) {
    let out = ''
    const h = await s.pty.create({ cols: 80, rows: 24, onData: (data) => { out += Buffer.from(data) } })
    await s.pty.sendInput(h.pid, Buffer.from('echo $TERM; stty size\n'))
    await until(() => out.includes('24 80'))
    await s.pty.resize(h.pid, { cols: 100, rows: 30 })
    await s.pty.sendInput(h.pid, Buffer.from('stty size; exit\n'))
    assert.equal((await h.wait()).exitCode, 0)
    assert.match(out, /xterm-256color/)
    assert.match(out, /30 100/)
  },
  async paused_sandbox_is_listed_and_connected(s) {
    const own = await Sandbox.create({ metadata: { a: 'b c' } })
    assert.deepEqual((await own.getInfo()).metadata, { a: 'b c' })
    await own.setTimeout(300_000)
    await own.files.write('/tmp/kept', 'kept')
    assert.deepEqual([await own.pause(), await own.pause(), await own.isRunning()], [true, false, false])
    const rows = await Sandbox.list({ query: { metadata: { a: 'b c' }, state: ['paused'] } }).nextItems()
    assert.deepEqual(rows.map((r) => r.sandboxId), [own.sandboxId])
    const again = await Sandbox.connect(own.sandboxId)
    assert.equal(await again.files.read('/tmp/kept'), 'kept')
    assert.deepEqual([await again.kill(), await Sandbox.kill(own.sandboxId)], [true, false])
    await assert.rejects(Sandbox.connect(own.sandboxId), named('SandboxNotFoundError'))
  },
  async snapshot_starts_a_sandbox(s) {
    await s.files.write('/tmp/kept', 'kept')
    const { snapshotId } = await s.createSnapshot()
    const copy = await Sandbox.create(snapshotId)
    assert.equal(await copy.files.read('/tmp/kept'), 'kept')
    await copy.kill()
    assert.deepEqual([await Sandbox.deleteSnapshot(snapshotId), await Sandbox.deleteSnapshot(snapshotId)], [true, false])
  },
  async port_of_a_program_is_reached_by_its_host_name(s) {
    const own = await Sandbox.create({ network: { allowPublicTraffic: false } })
    await own.files.write('served/page', 'hello')
    await own.commands.run('python3 -m http.server 8000 --directory served', { background: true, timeoutMs: 0 })
    // getHost() has a name below localhost, which the resolver of this host may not know.
    const host = own.getHost(8000), [, listener] = host.split(':')
    assert.match(host, new RegExp(`^8000-${own.sandboxId}\\.localhost:`))
    const visit = (headers) => new Promise((done, failed) => {
      http.get({ host: '127.0.0.1', port: listener, path: '/page', headers: { host, ...headers } }, (answer) => {
        answer.resume().on('end', () => done(answer.statusCode))
      }).on('error', failed)
    })
    await until(async () => (await visit({ 'e2b-traffic-access-token': own.trafficAccessToken })) === 200)
    assert.equal(await visit({}), 403)
    await own.kill()
  },
  async wrong_key_is_refused(s) {
    await assert.rejects(Sandbox.create({ apiKey: 'e2b_' + '0'.repeat(65) }), named('AuthenticationError'))
  },
  async sandbox_is_killed_under_a_command(s) {
    const own = await Sandbox.create()
    assert.equal(await own.isRunning(), true)
    const failed = own.commands.run('echo up; sleep 1000', { onStdout: () => own.kill() }).then(() => null, (e) => e)
    named('TimeoutError')(await failed)
    assert.equal(await own.isRunning(), false)
    await assert.rejects(own.commands.run('true'), named('SandboxNotFoundError'))
  },
}

const sandbox = await Sandbox.create({ envs: { FOO: 'bar' }, timeoutMs: 600000 })
for (const [name, run] of Object.entries(cases)) {
  const error = await run(sandbox).then(() => null, (e) => String(e?.stack ?? e))
  console.log(JSON.stringify({ name, error }))
}
await sandbox.kill()
