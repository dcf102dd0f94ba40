// Volumes by the real SDK, as a program would use them.
import assert from 'node:assert/strict'
import { Sandbox, Volume } from 'e2b'

const made = await Volume.create('by-sdk')
assert.equal(made.name, 'by-sdk')
assert.deepEqual(await Volume.list(), [{ volumeId: made.volumeId, name: 'by-sdk' }])
assert.equal((await Volume.getInfo(made.volumeId)).name, 'by-sdk')
const again = await Volume.connect(made.volumeId)
assert.deepEqual([again.name, again.volumeId], ['by-sdk', made.volumeId])

const s = await Sandbox.create({ volumeMounts: { '/mnt/v': again } })
assert.deepEqual((await s.getInfo()).volumeMounts, [{ name: 'by-sdk', path: '/mnt/v' }])
await s.files.write('/mnt/v/note', 'kept')
await assert.rejects(Sandbox.create({ volumeMounts: { '/mnt/v': 'by-sdk' } }), /only one machine/)
await assert.rejects(Volume.destroy(made.volumeId), (e) => e.name === 'VolumeError')
await s.kill()
const next = await Sandbox.create({ volumeMounts: { '/other': 'by-sdk' } })
assert.equal(await next.files.read('/other/note'), 'kept')
await next.kill()

// Their files are reached through a sandbox only, and each method says so.
for (const call of [(v) => v.list('/'), (v) => v.makeDir('/d'), (v) => v.getInfo('/note'), (v) => v.exists('/note'), (v) => v.readFile('/note'),
  (v) => v.writeFile('/note', 'x'), (v) => v.updateMetadata('/note', { mode: 0o600 }), (v) => v.remove('/note')])
  await assert.rejects(call(made), (e) => e.name === 'VolumeError' && /through a sandbox/.test(e.message))

assert.deepEqual([await Volume.destroy(made.volumeId), await Volume.destroy(made.volumeId)], [true, false])
await assert.rejects(Volume.getInfo(made.volumeId), (e) => e.name === 'VolumeNotFoundError')
await assert.rejects(Volume.create('not a name'), (e) => e.name === 'VolumeError' && /not a valid name/.test(e.message))
assert.deepEqual(await Volume.list(), [])
console.log('done')
