// Run by sandboxes.py in the folder of the package: `ROUNDS COUNT AT_ONCE` prints the milliseconds of each round by the
// SDK and by REST, and then the errors of COUNT sandboxes that are created, used and killed.
import { Sandbox } from 'e2b'

const rest = async (method, path, body) => {
  const answer = await fetch(process.env.E2B_API_URL + path, {
    method,
    headers: { Authorization: 'Bearer ' + process.env.CARREL_TOKEN, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  })
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`)
  return answer.status === 204 ? null : answer.json()
}

const ways = {
  async sdk() {
    const s = await Sandbox.create()
    const r = await s.commands.run('true')
    return [r.exitCode, () => s.kill()]
  },
  async rest() {
    const { id } = await rest('POST', '/v1/machines', { net: [{ action: 'ask', target: '*' }] })
    const argv = ['/bin/bash', '-l', '-c', 'true']
    const r = await rest('POST', `/v1/machines/${id}/execs`, { argv, user: 'user', cwd: '/home/user' })
    return [r.exec.status, () => rest('DELETE', `/v1/machines/${id}`)]
  },
}

async function pairs(rounds) {
  for (let i = 0; i < rounds; i++) {
    const took = {}
    for (const name of i % 2 ? ['sdk', 'rest'] : ['rest', 'sdk']) {
      const start = performance.now()
      const [status, end] = await ways[name]()
      took[name] = performance.now() - start
      if (status !== 0) throw new Error(`${name}: exit status ${status}`)
      await end()
    }
    console.log(JSON.stringify(took))
  }
}

async function crowd(count, atOnce) {
  const errors = []
  let next = 0
  const one = async (i) => {
    const s = await Sandbox.create({ metadata: { number: String(i) } })
    await s.files.write('note', `sandbox ${i}`)
    const r = await s.commands.run('cat note')
    if (r.stdout !== `sandbox ${i}`) throw new Error(`sandbox ${i} printed ${r.stdout}`)
    if (!(await s.kill())) throw new Error(`sandbox ${i} was not there to be killed`)
  }
  const start = performance.now()
  await Promise.all(Array.from({ length: atOnce }, async () => {
    while (next < count) await one(next++).catch((e) => errors.push(String(e)))
  }))
  console.log(JSON.stringify({ errors, ms: performance.now() - start, left: (await Sandbox.list().nextItems()).length }))
}

const [rounds, count, atOnce] = process.argv.slice(2).map(Number)
await pairs(rounds)
await crowd(count, atOnce)
