// Templates by the real SDK, as a program would build and use them. Prints what cases.mjs prints.
import assert from 'node:assert/strict'
import { mkdtempSync, mkdirSync, symlinkSync, writeFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Sandbox, Template, waitForFile, waitForProcess, defaultBuildLogger } from 'e2b'

const dir = mkdtempSync(join(tmpdir(), 'e2b-context-'))
mkdirSync(join(dir, 'tree/sub'), { recursive: true })
writeFileSync(join(dir, 'one.txt'), 'one')
writeFileSync(join(dir, 'tree/a.txt'), 'a')
writeFileSync(join(dir, 'tree/sub/b.txt'), 'b')
writeFileSync(join(dir, 'tree/left-out'), 'x')
symlinkSync('a.txt', join(dir, 'tree/link'))

const named = (name, pattern) => (error) => {
  assert.equal(error.name, name, error.message)
  if (pattern) assert.match(error.message, pattern)
  return true
}
const base = () => Template({ fileContextPath: dir, fileIgnorePatterns: ['**/left-out'] }).fromBaseImage()

// What a sandbox of the template prints.
async function printed(name, command) {
  const s = await Sandbox.create(name)
  try {
    return (await s.commands.run(command)).stdout
  } finally {
    await s.kill()
  }
}

export const cases = {
  async template_has_what_its_steps_made() {
    const logs = []
    const template = base()
      .setEnvs({ FOO: 'bar', BOTH: '$FOO-${FOO}' })
      .runCmd('echo "$BOTH" >made; id -un >>made; pwd >>made')
      .runCmd(['echo x', 'echo as root >/root-made'], { user: 'root' })
      .setWorkdir('work/deep')
      .runCmd('touch here')
      .makeDir('dir', { mode: 0o700 }).makeSymlink('here', 'there').rename('there', 'link').remove('here', { force: true })
      .setWorkdir('/home/user')
    const built = await Template.build(template, 'steps', { onBuildLogs: (entry) => logs.push(entry.message) })
    assert.deepEqual([built.name, built.templateId, built.tags], ['steps', 'steps', ['default']])
    assert.equal(await printed('steps', 'cat made /root-made; ls work/deep; echo $FOO'),
      'bar-bar\nuser\n/home/user\nas root\ndir\nlink\nbar\n')
    assert.ok(logs.some((line) => line.includes('[builder 2/')), logs.join('\n'))
    const status = await Template.getBuildStatus(built)
    assert.deepEqual([status.status, status.buildID, status.templateID], ['ready', built.buildId, 'steps'])
    assert.equal((await Template.getBuildStatus(built, { logsOffset: status.logEntries.length })).logEntries.length, 0)
  },
  async files_are_copied_as_in_a_dockerfile() {
    const template = base()
      .copy('one.txt', 'renamed.txt')
      .copy('one.txt', '/opt/into/', { user: 'root', mode: 0o640 })
      .copy('tree', '/opt/tree')
      .copyItems([{ src: 'tree/*.txt', dest: '/opt/flat', gzip: false }, { src: 'tree/link', dest: '/opt/link' }])
    await Template.build(template, 'copied')
    assert.equal(await printed('copied', 'cat renamed.txt; stat -c "%U" renamed.txt; stat -c "%U %a" /opt/into/one.txt'),
      'oneuser\nroot 640\n')
    assert.equal(await printed('copied', 'cd /opt/tree && find . | sort; readlink /opt/link link; ls /opt/flat; stat -c %U sub/b.txt'),
      '.\n./a.txt\n./link\n./sub\n./sub/b.txt\na.txt\na.txt\na.txt\nuser\n')
  },
  async dockerfile_is_built() {
    const template = Template({ fileContextPath: dir }).fromDockerfile(
      'FROM e2bdev/base\nARG V=1\nENV A=b\nWORKDIR /app\nCOPY --chown=root one.txt .\nRUN cat one.txt >two.txt\nUSER user\nCMD ["sleep", "1000"]\n')
    assert.match(Template.toDockerfile(template), /^FROM e2bdev\/base\n/)
    assert.match(await Template.toJSON(template), /"COPY"/)
    const built = await Template.build(template.setReadyCmd(waitForProcess('sleep')), 'from-dockerfile')
    assert.equal(built.name, 'from-dockerfile')
    assert.equal(await printed('from-dockerfile', 'cat /app/two.txt; echo $A $V; pgrep -x sleep | wc -l'), 'oneb 1\n1\n')
  },
  async dockerfile_that_cannot_be_built_says_why() {
    const build = (text) => Template.build(Template({ fileContextPath: dir }).fromDockerfile(text), 'unbuildable')
    await assert.rejects(build('FROM no-such-image:9\nRUN true\n'), named('BuildError', /no-such-image:9.*carrel image pull no-such-image:9/s))
    await assert.rejects(build('FROM e2bdev/base\nRUN true\nRUN echo before; exit 7\n'), named('BuildError', /step \d: the command exited with status 7.*before/s))
    await assert.rejects(build('FROM e2bdev/base\nCOPY no-such-file /x\n'), /no-such-file/)
    assert.equal(await Template.exists('unbuildable'), false)
    await build('FROM e2bdev/base\nRUN true\nRUN echo before\n') // the control
    assert.equal(await Template.exists('unbuildable'), true)
  },
  async start_command_runs_before_the_sandbox_is_given_out() {
    const template = base().setStartCmd('sleep 1; touch /tmp/up; sleep 1000', waitForFile('/tmp/up'))
    await Template.build(template, 'started', { cpuCount: 1, memoryMB: 512 })
    const s = await Sandbox.create('started')
    assert.equal(await s.files.exists('/tmp/up'), true)
    const info = await s.getInfo()
    assert.deepEqual([info.cpuCount, info.memoryMB], [1, 512])
    await s.kill()
    await Template.build(Template().fromTemplate('started').runCmd('touch more'), 'started-too')
    assert.equal(await printed('started-too', 'ls more /tmp/up'), '/tmp/up\nmore\n')
  },
  async tags_name_builds() {
    const first = await Template.build(base().runCmd('echo 1 >n'), 'tagged:v1', { tags: ['v1', 'stable'] })
    assert.deepEqual(first.tags, ['v1', 'stable'])
    const second = await Template.build(base().runCmd('echo 2 >n'), 'tagged')
    assert.equal(await printed('tagged:v1', 'cat n'), '1\n')
    assert.equal(await printed('tagged', 'cat n'), '2\n')
    assert.deepEqual(await Template.assignTags('tagged', ['stable', 'new']), { buildId: second.buildId, tags: ['stable', 'new'] })
    assert.equal(await printed('tagged:stable', 'cat n'), '2\n')
    const tags = await Template.getTags('tagged')
    assert.deepEqual(Object.fromEntries(tags.map((t) => [t.tag, t.buildId])),
      { v1: first.buildId, stable: second.buildId, new: second.buildId, default: second.buildId })
    assert.ok(tags.every((t) => t.createdAt instanceof Date && !Number.isNaN(t.createdAt.getTime())))
    await Template.removeTags('tagged', ['new', 'stable'])
    assert.deepEqual((await Template.getTags('tagged')).map((t) => t.tag).sort(), ['default', 'v1'])
    await assert.rejects(Template.removeTags('tagged', 'default'), named('TemplateError', /cannot be removed/))
    await assert.rejects(Template.removeTags('tagged', 'none'), named('TemplateError', /not found/))
    await assert.rejects(Template.assignTags('none', 'x'), named('TemplateError', /not found/))
    await assert.rejects(Template.assignTags('tagged', 'a b'), named('TemplateError', /not a valid name/))
    await assert.rejects(Template.getTags('none'), named('TemplateError', /not found/))
  },
  async users_are_made_and_variables_are_those_of_the_step() {
    const template = base().setEnvs({ A: '1' }).setUser('other').setWorkdir('~x').runCmd('id -un; pwd; echo $A').setEnvs({ A: '2' })
    const lines = []
    await Template.build(template, 'users', { onBuildLogs: (entry) => lines.push(entry.message) })
    assert.ok(lines.join('\n').includes('other\n/home/user/~x\n1'), lines.join('\n'))
    assert.equal(await printed('users', 'id -un; pwd; echo $A; stat -c %U "/home/user/~x"'), 'other\n/home/user/~x\n2\nother\n')
  },
  async existence_of_a_name() {
    await Template.build(base().runCmd('true'), { alias: 'by-alias' })
    assert.deepEqual([await Template.exists('by-alias'), await Template.aliasExists('by-alias'), await Template.exists('no-such')],
      [true, true, false])
  },
  async build_in_the_background_is_polled() {
    const built = await Template.buildInBackground(base().runCmd('echo polled'), 'polled', { skipCache: true })
    let status = await Template.getBuildStatus(built)
    assert.ok(['building', 'ready'].includes(status.status))
    while (status.status === 'building') status = await Template.getBuildStatus(built)
    assert.equal(status.status, 'ready')
    assert.ok(status.logEntries.some((entry) => entry.message === 'polled'))
  },
  async failed_step_is_named_with_its_reason() {
    const failing = base().runCmd('echo told; exit 3')
    const built = await Template.buildInBackground(failing, 'failing')
    await assert.rejects(Template.build(failing, 'failing', { onBuildLogs: defaultBuildLogger({ minLevel: 'error' }) }),
      named('BuildError', /status 3/))
    let status = await Template.getBuildStatus(built)
    while (status.status === 'building') status = await Template.getBuildStatus(built)
    assert.deepEqual([status.status, status.reason.step], ['error', '1'])
    assert.match(status.reason.message, /step 1: the command exited with status 3\ntold$/)
    const offline = base().runCmd('for i in 1 2 3 4 5 6 7 8 9; do echo $i; done; echo "curl: (6) Could not resolve host: example.com"; exit 6')
    await assert.rejects(Template.build(offline, 'failing'),
      named('BuildError', /status 6: .*internet = allow.*\n6\n7\n8\n9\ncurl: \(6\) Could not resolve host/))
    assert.equal(await Template.exists('failing'), false)
  },
  async image_that_is_not_here_is_refused_with_the_reason() {
    await assert.rejects(Template.build(Template().fromUbuntuImage('22.04'), 'absent'), named('BuildError', /carrel image pull ubuntu:22\.04/))
    for (const t of [Template().fromDebianImage('none'), Template().fromPythonImage('none'), Template().fromNodeImage('none'),
      Template().fromBunImage('none'), Template().fromAlpineImage('none'), Template().fromFedoraImage('none'), Template().fromArchImage('none')])
      await assert.rejects(Template.build(t, 'absent'), named('BuildError', /not found/))
    await assert.rejects(Template.build(Template().fromTemplate('none'), 'absent'), named('BuildError', /not found/))
    await assert.rejects(Template.build(Template().fromImage('private/image', { username: 'u', password: 'p' }), 'absent'),
      named('BuildError', /fromImageRegistry/))
    await assert.rejects(Template.build(base(), 'not a name'), named('BuildError', /not a valid name/))
    assert.equal(await Template.exists('absent'), false)
  },
}

for (const [name, run] of Object.entries(cases)) {
  const error = await run().then(() => null, (e) => String(e?.stack ?? e))
  console.log(JSON.stringify({ name, error }))
}
rmSync(dir, { recursive: true })
