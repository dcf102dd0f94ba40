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

// Their files, without a sandbox.
assert.equal(await again.readFile('/note'), 'kept')
assert.equal((await made.makeDir('/d/e', { force: true })).type, 'directory')
const wrote = await made.writeFile('/d/e/f', 'bytes', { mode: 0o600, uid: 0 })
assert.deepEqual([wrote.path, wrote.type, wrote.size, wrote.mode, wrote.uid, wrote.mtime instanceof Date], ['/d/e/f', 'file', 5, 0o600, 0, true])
assert.deepEqual((await made.list('/d', { depth: 2 })).map((e) => e.path), ['/d/e', '/d/e/f'])
assert.equal(new TextDecoder().decode(await made.readFile('/d/e/f', { format: 'bytes' })), 'bytes')
assert.equal((await made.updateMetadata('/d/e/f', { mode: 0o640 })).mode, 0o640)
assert.deepEqual([await made.exists('/d/e/f'), await made.exists('/none'), (await made.getInfo('/d')).name], [true, false, 'd'])
await made.remove('/d')
await assert.rejects(made.readFile('/d/e/f'), (e) => e.name === 'VolumePathNotFoundError')

assert.deepEqual([await Volume.destroy(made.volumeId), await Volume.destroy(made.volumeId)], [true, false])
await assert.rejects(Volume.getInfo(made.volumeId), (e) => e.name === 'VolumeNotFoundError')
await assert.rejects(Volume.create('not a name'), (e) => e.name === 'VolumeError' && /not a valid name/.test(e.message))
assert.deepEqual(await Volume.list(), [])
console.log('done')
