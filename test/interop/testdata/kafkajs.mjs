// kafkajs, as its users use it.
import assert from 'node:assert'
import kafkajs from 'kafkajs'

const { Kafka, CompressionTypes, logLevel } = kafkajs
const kafka = new Kafka({ clientId: 'journey', brokers: [process.argv[2]], logLevel: logLevel.ERROR })
const admin = kafka.admin()
await admin.connect()
await admin.createTopics({ topics: [{ topic: 'journey', numPartitions: 4 }], waitForLeaders: true })
assert((await admin.listTopics()).includes('journey'))

const sent = new Set()
for (const [name, compression] of [['none', CompressionTypes.None], ['gzip', CompressionTypes.GZIP]]) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const messages = Array.from({ length: 200 }, (_, i) => ({ key: String(i), value: `${name}-${i}`, headers: { codec: name } }))
  for (const m of messages) sent.add(m.value)
  await producer.send({ topic: 'journey', compression, acks: -1, messages })
  await producer.disconnect()
}

const seen = new Set()
const owned = new Map()
const consumers = []
for (let n = 0; n < 2; n++) {
  const c = kafka.consumer({ groupId: 'travellers' })
  c.on(c.events.GROUP_JOIN, e => owned.set(n, e.payload.memberAssignment.journey?.length ?? 0))
  await c.connect()
  await c.subscribe({ topic: 'journey', fromBeginning: true })
  await c.run({ eachMessage: async ({ message }) => { seen.add(message.value.toString()) } })
  consumers.push(c)
}
const shared = () => owned.get(0) === 2 && owned.get(1) === 2
for (let end = Date.now() + 45000; Date.now() < end && !(seen.size === sent.size && shared());) {
  await new Promise(resolve => setTimeout(resolve, 100))
}
assert.equal(seen.size, sent.size)
assert(shared(), JSON.stringify([...owned]))
for (const c of consumers) await c.disconnect() // commits

const offsets = await admin.fetchOffsets({ groupId: 'travellers', topics: ['journey'] })
assert.equal(offsets[0].partitions.reduce((sum, p) => sum + Math.max(0, Number(p.offset)), 0), sent.size)
await admin.setOffsets({ groupId: 'travellers', topic: 'journey', partitions: [{ partition: 0, offset: '0' }] })
const groups = await admin.describeGroups(['travellers'])
assert.equal(groups.groups[0].state, 'Empty')
await admin.deleteGroups(['travellers'])
await admin.deleteTopics({ topics: ['journey'] })
await admin.disconnect()
console.log('journey done')
