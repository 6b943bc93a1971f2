// @platformatic/kafka, as its users use it.
import assert from 'node:assert'
import zlib from 'node:zlib'
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const base = { clientId: 'journey', bootstrapBrokers: [process.argv[2]] }
const admin = new Admin(base)
await admin.createTopics({ topics: ['journey'], partitions: 4, replicas: 1 })

const sent = new Set()
for (const compression of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) {
  if (compression === 'zstd' && !zlib.zstdCompressSync) continue // an older Node.js has none
  const producer = new Producer({ ...base, serializers: stringSerializers, compression, idempotent: true })
  const messages = Array.from({ length: 100 }, (_, i) => ({ topic: 'journey', key: String(i), value: `${compression}-${i}`, headers: { codec: compression } }))
  for (const m of messages) sent.add(m.value)
  await producer.send({ messages, acks: -1 })
  await producer.close()
}

const seen = new Set()
const consumers = []
const streams = []
for (let n = 0; n < 2; n++) {
  const consumer = new Consumer({ ...base, groupId: 'travellers', deserializers: stringDeserializers })
  consumers.push(consumer)
  const stream = await consumer.consume({ topics: ['journey'], mode: 'committed', fallbackMode: 'earliest', autocommit: true, sessionTimeout: 10000, heartbeatInterval: 500 })
  stream.on('data', m => seen.add(m.value))
  stream.on('error', e => { console.error(e); process.exitCode = 1 })
  streams.push(stream)
}
for (let end = Date.now() + 45000; Date.now() < end && seen.size < sent.size;) {
  await new Promise(resolve => setTimeout(resolve, 100))
}
assert.equal(seen.size, sent.size)
for (const c of consumers) await c.close(true)
const groups = await admin.listGroups()
assert([...groups.keys()].includes('travellers'))
await admin.deleteTopics({ topics: ['journey'] })
await admin.close()
console.log('journey done')
