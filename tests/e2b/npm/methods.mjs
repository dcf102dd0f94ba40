// Methods of the SDK that the other programs leave out: Git, copies, networks, and those that are refused with a reason.
import assert from 'node:assert/strict'
import { ConnectionConfig, E2B, Sandbox, Secret, Template, getSignature, waitForPort, waitForProcess, waitForTimeout, waitForURL } from 'e2b'

const named = (name, text = '') => (error) => {
  assert.equal(error.name, name, error.message)
  assert.ok(error.message.includes(text), error.message)
  return true
}

export const cases = {
  async git_repository_is_made_and_changed(s) {
    const g = s.git, at = '/tmp/repo'
    await g.init(at, { initialBranch: 'main' })
    await g.configureUser('A', 'a@example.com')
    await g.setConfig('core.editor', 'true', { scope: 'local', path: at })
    assert.equal(await g.getConfig('core.editor', { scope: 'local', path: at }), 'true')
    assert.equal(await g.getConfig('user.email'), 'a@example.com')
    await s.files.write(`${at}/one`, 'one\n')
    assert.equal((await g.status(at)).fileStatus.length, 1)
    await g.add(at, { all: true })
    await g.commit(at, 'first')
    await g.createBranch(at, 'side')
    await g.checkoutBranch(at, 'main')
    assert.deepEqual((await g.branches(at)).branches.sort(), ['main', 'side'])
    await g.deleteBranch(at, 'side', { force: true })
    assert.deepEqual((await g.branches(at)).branches, ['main'])
    await s.files.write(`${at}/one`, 'two\n')
    await g.restore(at, { paths: ['one'] })
    assert.equal(await s.files.read(`${at}/one`), 'one\n')
    await s.files.write(`${at}/one`, 'three\n')
    await g.reset(at, { mode: 'hard' })
    assert.equal(await s.files.read(`${at}/one`), 'one\n')
  },
  async git_repository_is_cloned_pushed_and_pulled(s) {
    const g = s.git
    await s.commands.run('git init -q --bare -b main /tmp/bare && git init -q -b main /tmp/seed && cd /tmp/seed && echo 1 >f && git add f && '
      + 'git -c user.name=a -c user.email=a@b commit -qm 1 && git push -q /tmp/bare main')
    await g.clone('file:///tmp/bare', { path: '/tmp/clone' })
    await g.configureUser('A', 'a@example.com', { scope: 'local', path: '/tmp/clone' })
    assert.equal(await g.remoteGet('/tmp/clone', 'origin'), 'file:///tmp/bare')
    await g.remoteAdd('/tmp/clone', 'second', 'file:///tmp/bare')
    await s.files.write('/tmp/clone/g', 'g')
    await g.add('/tmp/clone', { files: ['g'] })
    await g.commit('/tmp/clone', 'second')
    await g.push('/tmp/clone', { remote: 'origin', branch: 'main' })
    await s.commands.run('cd /tmp/seed && git pull -q /tmp/bare main && echo 3 >h && git add h && git -c user.name=a -c user.email=a@b commit -qm 3 && git push -q /tmp/bare main')
    await g.pull('/tmp/clone', { remote: 'origin', branch: 'main' })
    assert.ok(await s.files.exists('/tmp/clone/h'))
    await g.dangerouslyAuthenticate({ username: 'u', password: 'p' })
    assert.match((await s.commands.run('cat ~/.git-credentials')).stdout, /u:p@github\.com/)
  },
  async sandbox_is_forked(s) {
    await s.files.write('/tmp/forked', 'yes')
    const [copy] = await Sandbox.fork(s.sandboxId, { count: 1 })
    assert.equal(await copy.files.read('/tmp/forked'), 'yes')
    await copy.kill()
  },
  async snapshots_are_listed(s) {
    const { snapshotId } = await s.createSnapshot()
    const pages = s.listSnapshots({ limit: 1 })
    assert.equal(pages.hasNext, true)
    assert.deepEqual((await pages.nextItems()).map((p) => p.snapshotId), [snapshotId])
    assert.equal(pages.nextToken, undefined)
    assert.ok((await Sandbox.listSnapshots().nextItems()).length >= 1)
    await Sandbox.deleteSnapshot(snapshotId)
  },
  async network_is_replaced(s) {
    await s.updateNetwork({ denyOut: ['203.0.113.0/24', '198.51.100.7'], allowOut: ['a.example'] })
    await Sandbox.updateNetwork(s.sandboxId, {})
    await assert.rejects(s.updateNetwork({ denyOut: ['10.0.0.0/99'] }), /not a valid target/)
    assert.equal((await Sandbox.getFullInfo(s.sandboxId)).allowInternetAccess, false)
  },
  async metrics_come(s) {
    assert.ok(Array.isArray(await s.getMetrics()))
    assert.ok(Array.isArray(await Sandbox.getMetrics(s.sandboxId)))
  },
  async sandbox_is_paused_by_the_older_name(s) {
    const own = await Sandbox.create()
    await own.betaPause()
    assert.equal(await own.isRunning(), false)
    await own.kill()
  },
  async files_are_written_together_and_input_closes(s) {
    await s.files.writeFiles([{ path: '/tmp/w1', data: '1' }, { path: '/tmp/w2', data: '2' }])
    assert.equal(await s.files.read('/tmp/w2'), '2')
    assert.equal(s.commands.supportsStdinClose, true)
  },
  async metadata_of_files_is_kept(s) {
    const path = '/home/user/labelled'
    assert.deepEqual((await s.files.write(path, 'x', { metadata: { Author: 'b c' } })).metadata, { author: 'b c' })
    assert.deepEqual((await s.files.getInfo(path)).metadata, { author: 'b c' })
    assert.deepEqual((await s.files.list('/home/user')).find((e) => e.path === path).metadata, { author: 'b c' })
    assert.equal((await s.files.write(path, 'y')).metadata, undefined)
    assert.equal((await s.files.getInfo(path)).metadata, undefined)
  },
  async client_has_its_own_settings() {
    const client = new E2B({ apiKey: 'e2b_' + '0'.repeat(65) })
    await assert.rejects(client.Sandbox.create(), named('AuthenticationError'))
  },
  async signature_is_as_the_server_expects(s) {
    const { signature } = await getSignature({ path: 'hello.txt', operation: 'read', user: 'user', envdAccessToken: '0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0' })
    assert.equal(signature, 'v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E')
  },
  async secrets_are_refused_with_the_reason() {
    for (const call of [() => Secret.create('a', 'b'), () => Secret.update('a', 'c'), () => Secret.getInfo('a'), () => Secret.exists('a'),
      () => Secret.destroy('a'), () => Secret.list().nextItems()])
      await assert.rejects(call(), named('SecretError', 'secrets of E2B are not supported'))
  },
  async servers_of_mcp_are_refused_with_the_reason(s) {
    await assert.rejects(Sandbox.create({ mcp: { browserbase: {} } }), /mcp/)
    assert.match(s.getMcpUrl(), new RegExp(`50005-${s.sandboxId}`))
    await assert.rejects(s.getMcpToken(), named('FileNotFoundError'))
  },
  async recipes_of_packages_are_commands() {
    const file = Template.toDockerfile(Template().fromImage('debian').aptInstall(['jq']).pipInstall(['httpx']).npmInstall(['left-pad']).bunInstall()
      .gitClone('https://example.com/a.git', '/a').setStartCmd('true', waitForURL('http://localhost:1/')))
    for (const words of ['apt-get install', 'jq', 'pip install', 'httpx', 'npm install', 'bun install', 'git clone'])
      assert.ok(file.includes(words), words)
    assert.match(waitForPort(80).getCmd(), /80/)
    assert.match(waitForTimeout(2000).getCmd(), /2/)
    assert.match(waitForProcess('nginx').getCmd(), /nginx/)
    assert.equal(new ConnectionConfig({ domain: 'a.example' }).getHost('x', 3000), '3000-x.a.example')
  },
}

const sandbox = await Sandbox.create({ timeoutMs: 600000 })
for (const [name, run] of Object.entries(cases)) {
  const error = await run(sandbox).then(() => null, (e) => String(e?.stack ?? e))
  console.log(JSON.stringify({ name, error }))
}
await sandbox.kill()
