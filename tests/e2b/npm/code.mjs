// The code interpreter by its real SDK. Prints a line of JSON for each case: its name, and the error if it failed.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { Sandbox } from '@e2b/code-interpreter'

const named = (name) => (error) => {
  assert.equal(error.name, name, error.message)
  return true
}

// The only result, or what it says of an error.
async function shown(s, code, options) {
  const run = await s.runCode(code, options)
  assert.equal(run.error, undefined, run.error?.traceback)
  assert.equal(run.results.length, 1, JSON.stringify(run))
  return run.results[0]
}

export const cases = {
  async code_keeps_its_variables(s) {
    await s.runCode('x = 1')
    const run = await s.runCode('x += 1\nx')
    assert.equal(run.text, '2')
    assert.equal(run.results[0].isMainResult, true)
    assert.deepEqual((await s.runCode('x = 5')).results, [])
  },
  async output_comes_as_it_is_printed(s) {
    const [out, err] = [[], []]
    const run = await s.runCode('import sys\nprint("a")\nprint("é", file=sys.stderr)', {
      onStdout: (m) => out.push(m.line), onStderr: (m) => err.push(m.line) })
    assert.deepEqual([out, err, run.logs], [['a\n'], ['é\n'], { stdout: ['a\n'], stderr: ['é\n'] }])
    const seen = []
    const slow = s.runCode('print(1)\nwhile not __import__("os").path.exists("/tmp/go"): pass', { onStdout: () => seen.push(1) })
    while (!seen.length) await sleep(20)
    await s.files.write('/tmp/go', '')
    assert.equal((await slow).error, undefined)
  },
  async errors_have_name_value_and_traceback(s) {
    const seen = []
    const run = await s.runCode('def f():\n    return 1 / 0\nf()', { onError: (e) => seen.push(e.name) })
    assert.deepEqual([run.error.name, run.error.value, seen], ['ZeroDivisionError', 'division by zero', ['ZeroDivisionError']])
    assert.match(run.error.traceback, /return 1 \/ 0/)
    assert.equal((await s.runCode('nope')).error.value, "name 'nope' is not defined")
    assert.equal((await s.runCode('def (')).error.name, 'SyntaxError')
    assert.equal((await s.runCode('exit()')).error.name, 'SystemExit')
    assert.equal((await s.runCode('1 + 1')).text, '2')
  },
  async executions_are_counted(s) {
    const context = await s.createCodeContext()
    const counts = []
    for (const code of ['1', '1/0', '!echo x']) counts.push((await s.runCode(code, { context })).executionCount)
    assert.deepEqual(counts, [1, 2, 3])
  },
  async results_have_all_formats(s) {
    const made = `
class Shown:
    def __repr__(self): return 'shown'
    def _repr_html_(self): return '<b>h</b>'
    def _repr_markdown_(self): return '**m**'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'png'
    def _repr_jpeg_(self): return b'jpeg'
    def _repr_pdf_(self): return b'pdf'
    def _repr_latex_(self): return '$l$'
    def _repr_json_(self): return {'j': 1}
    def _repr_javascript_(self): return 'js()'
    def _repr_mimebundle_(self, include=None, exclude=None): return {'x/own': [1]}
Shown()`
    const r = await shown(s, made)
    assert.deepEqual([r.text, r.html, r.markdown, r.svg, r.latex, r.javascript], ['shown', '<b>h</b>', '**m**', '<svg/>', '$l$', 'js()'])
    assert.deepEqual([r.png, r.jpeg, r.pdf].map((b) => Buffer.from(b, 'base64').toString()), ['png', 'jpeg', 'pdf'])
    assert.deepEqual([r.json, r.extra], [{ j: 1 }, { 'x/own': [1] }])
    assert.deepEqual(r.formats(), ['html', 'markdown', 'svg', 'png', 'jpeg', 'pdf', 'latex', 'json', 'javascript', 'x/own'])
    assert.equal(r.toJSON().text, 'shown')
    assert.equal((await shown(s, "'text'")).text, 'text')
    assert.deepEqual((await shown(s, "[1, {'a': float('nan')}]")).json, [1, { a: null }])
  },
  async display_shows_before_what_follows(s) {
    const seen = []
    const run = await s.runCode(`
        from IPython.display import display, HTML, Markdown
        display(HTML('<i>1</i>'))
        print('between')
        display(Markdown('2'), 3)
        'last'`, { onResult: (r) => seen.push(r.html ?? r.markdown ?? r.text), onStdout: (m) => seen.push(m.line) })
    assert.equal(run.error, undefined, run.error?.traceback)
    assert.deepEqual(seen, ['<i>1</i>', 'between\n', '2', '3', 'last'])
    assert.deepEqual([run.text, run.results.map((r) => r.isMainResult)], ['last', [false, false, false, true]])
    assert.deepEqual(Object.keys(run.toJSON()), ['results', 'logs', 'error'])
  },
  async lines_of_notebooks(s) {
    assert.equal((await s.runCode('!echo $((6 * 7))')).logs.stdout.join(''), '42\n')
    assert.equal((await s.runCode('%%bash\nfor i in 1 2\ndo echo $i; done')).logs.stdout.join(''), '1\n2\n')
    assert.equal((await s.runCode('%cd /tmp\nimport os\nos.getcwd()')).text, '/tmp')
  },
  async variables_of_one_run_only(s) {
    const code = 'import os\n[os.environ.get(n) for n in ("FOO", "OWN")]'
    assert.deepEqual((await shown(s, code, { envs: { OWN: "it's", FOO: 'x' } })).json, ['x', "it's"])
    assert.deepEqual((await shown(s, code)).json, ['bar', null])
  },
  async contexts_are_apart(s) {
    const one = await s.createCodeContext({ cwd: '/tmp' })
    const two = await s.createCodeContext({ language: 'js', cwd: '/' })
    assert.deepEqual([one.language, one.cwd, two.language, two.cwd], ['python', '/tmp', 'javascript', '/'])
    const list = await s.listCodeContexts()
    for (const language of ['python', 'javascript']) assert.ok(list.some((c) => c.id === language && c.language === language))
    assert.deepEqual(list.slice(-2), [one, two])
    await s.runCode('y = 7', { context: one })
    assert.equal((await s.runCode('import os; os.getcwd(), y', { context: one })).text, "('/tmp', 7)")
    assert.equal((await s.runCode('process.cwd()', { context: two })).text, '/')
    assert.equal((await s.runCode('y')).error.name, 'NameError')
    await s.restartCodeContext(one)
    assert.equal((await s.runCode('y', { context: one })).error.value, "name 'y' is not defined")
    await s.removeCodeContext(one.id)
    assert.ok(!(await s.listCodeContexts()).some((c) => c.id === one.id))
    await assert.rejects(s.runCode('1', { context: one }), named('NotFoundError'))
    await assert.rejects(s.removeCodeContext(one), named('NotFoundError'))
    await assert.rejects(s.restartCodeContext('nope'), named('NotFoundError'))
    await s.removeCodeContext(two)
    await assert.rejects(s.createCodeContext({ cwd: '/none' }))
  },
  async javascript_and_its_modules(s) {
    const js = (code, more) => s.runCode(code, { language: 'js', ...more })
    await js('const a = 40')
    assert.equal((await js('a + 2')).text, '42')
    assert.deepEqual((await js("import { join } from 'path'\nconsole.log(join('a', 'b'))")).logs.stdout, ['a/b\n'])
    assert.equal((await js("await Promise.resolve('later')")).text, 'later')
    assert.equal((await js('Promise.resolve(6)')).text, '6')
    assert.deepEqual((await js('({ a: [1] })')).results[0].json, { a: [1] })
    assert.equal((await js('process.env.OWN', { envs: { OWN: '1' } })).text, '1')
    assert.deepEqual((await js('process.env.OWN')).results, [])
    const failed = (await js('throw new TypeError("bad")')).error
    assert.deepEqual([failed.name, failed.value], ['TypeError', 'bad'])
    assert.equal((await js('nope')).error.name, 'ReferenceError')
    const own = "display({ [Symbol.for('Jupyter.display')]: () => ({ 'text/html': '<p>' }) })"
    assert.equal((await js(own)).results[0].html, '<p>')
    await assert.rejects(js('while (true) {}', { timeoutMs: 1000 }), named('TimeoutError'))
    await assert.rejects(js('await new Promise(() => {})', { timeoutMs: 1000 }), named('TimeoutError'))
    assert.equal((await js('a')).text, '40')
    assert.equal((await js('process.exit(1)')).error.name, 'UnexpectedEndOfExecution')
    assert.equal((await js('typeof a')).text, 'undefined')
  },
  async typescript_is_stripped(s) {
    const run = await s.runCode('const message: string = "typed"; console.log(message)', { language: 'ts' })
    if (run.error?.value.startsWith('TypeScript needs')) return
    assert.deepEqual(run.logs.stdout, ['typed\n'])
  },
  async other_languages_are_refused(s) {
    const refused = (e) => named('NotFoundError')(e) && /language 'r' is not supported; python/.test(e.message)
    await assert.rejects(s.runCode('1', { language: 'r' }), refused)
    await assert.rejects(s.createCodeContext({ language: 'r' }), refused)
    const context = await s.createCodeContext()
    await assert.rejects(s.runCode('1', { context, language: 'python' }), named('InvalidArgumentError'))
    await s.removeCodeContext(context)
  },
  async code_is_interrupted_when_its_client_leaves(s) {
    await s.runCode('kept = 1')
    await assert.rejects(s.runCode('import time\ntime.sleep(1000)', { timeoutMs: 500 }), named('TimeoutError'))
    assert.equal((await s.runCode('kept')).text, '1')
  },
  async runs_of_one_context_wait_for_each_other(s) {
    await s.runCode('n = 0')
    const runs = await Promise.all([1, 2, 3, 4].map(() => s.runCode('n += 1\nn')))
    assert.deepEqual(runs.map((r) => r.text).sort(), ['1', '2', '3', '4'])
  },
  async figures_have_charts(s) {
    const has = await s.runCode('import matplotlib.pyplot as plt')
    if (has.error) return 'matplotlib is not in the image: ' + has.error.value
    const r = await shown(s, 'plt.plot([1, 2], label="l")\nplt.show()')
    assert.equal(Buffer.from(r.png, 'base64').subarray(1, 4).toString(), 'PNG')
    assert.deepEqual([r.chart.type, r.chart.elements[0].label, r.extra], ['line', 'l', {}])
  },
  async tables_have_data(s) {
    const has = await s.runCode('import pandas as pd')
    if (has.error) return 'pandas is not in the image: ' + has.error.value
    const r = await shown(s, 'pd.DataFrame({"a": [1, 2], "t": pd.to_datetime(["2024-01-02", "2024-01-03"])})')
    assert.deepEqual(r.data, { a: [1, 2], t: ['2024-01-02T00:00:00', '2024-01-03T00:00:00'] })
    assert.match(r.html, /<table/)
    assert.deepEqual(r.formats(), ['html', 'data'])
  },
  async sandbox_is_killed_under_code(s) {
    const own = await Sandbox.create()
    const failed = own.runCode('print(1)\nimport time\ntime.sleep(1000)', { onStdout: () => own.kill() }).then(() => null, (e) => e)
    named('TimeoutError')(await failed)
    await assert.rejects(own.runCode('1'))
  },
  async contexts_go_on_after_a_pause(s) {
    const own = await Sandbox.create()
    await own.runCode('z = 8')
    if (!(await own.pause())) return
    const again = await Sandbox.connect(own.sandboxId)
    assert.equal((await again.runCode('z')).text, '8')
    await again.kill()
  },
}

const own = process.argv.slice(2)
const sandbox = await Sandbox.create({ envs: { FOO: 'bar' }, timeoutMs: 600000 })
for (const [name, run] of Object.entries(cases)) {
  if (own.length && !own.includes(name)) continue
  const [skipped, error] = await run(sandbox).then((why) => [why ?? null, null], (e) => [null, String(e?.stack ?? e)])
  console.log(JSON.stringify({ name, skipped, error }))
}
await sandbox.kill()
