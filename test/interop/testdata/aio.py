"""aiokafka, as its users use it."""
import asyncio, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

at = sys.argv[1]

async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=at)
    await admin.start()
    await admin.create_topics([NewTopic(name="journey", num_partitions=4, replication_factor=1)])
    sent = set()
    for codec in [None, "gzip", "snappy", "lz4", "zstd"]:
        p = AIOKafkaProducer(bootstrap_servers=at, compression_type=codec, enable_idempotence=True)
        await p.start()
        for i in range(100):
            value = f"{codec}-{i}"
            sent.add(value)
            await p.send("journey", key=str(i).encode(), value=value.encode())
        await p.flush()
        await p.stop()

    seen = set()
    consumers = [AIOKafkaConsumer("journey", bootstrap_servers=at, group_id="travellers", auto_offset_reset="earliest", enable_auto_commit=False) for _ in range(2)]
    for c in consumers:
        await c.start()

    shared = lambda: sorted(len(c.assignment()) for c in consumers) == [2, 2]

    async def work(c):
        while not (seen >= sent and shared()):
            for batch in (await c.getmany(timeout_ms=200)).values():
                seen.update(m.value.decode() for m in batch)
        await c.commit()

    await asyncio.wait_for(asyncio.gather(*[work(c) for c in consumers]), 45)
    for c in consumers:
        await c.stop()
    assert seen == sent, (len(seen), len(sent))

    again = AIOKafkaConsumer("journey", bootstrap_servers=at, group_id="travellers")
    await again.start()
    ends = await again.end_offsets([TopicPartition("journey", p) for p in range(4)])
    assert sum(ends.values()) == len(sent), ends
    for p in range(4):
        assert await again.committed(TopicPartition("journey", p)) == ends[TopicPartition("journey", p)]
    await again.stop()
    groups = await admin.list_consumer_groups()
    assert any(g[0] == "travellers" for g in groups), groups
    await admin.delete_topics(["journey"])
    await admin.close()
    print("journey done")

asyncio.run(main())
