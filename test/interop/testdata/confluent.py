"""librdkafka, through its Python binding, as its users use it."""
import sys, threading, time
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, NewPartitions, ConfigResource, ResourceType

at = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(at)
for f in admin.create_topics([NewTopic("journey", 4, 1, config={"retention.ms": "3600000"})]).values():
    f.result(10)
config = list(admin.describe_configs([ConfigResource(ResourceType.TOPIC, "journey")]).values())[0].result(10)
assert config["retention.ms"].value == "3600000"

failed = []
sent = set()
for codec in ["none", "gzip", "snappy", "lz4", "zstd"]:
    p = Producer({**at, "compression.type": codec, "enable.idempotence": True})
    for i in range(300):
        value = f"{codec}-{i}"
        sent.add(value)
        p.produce("journey", key=str(i), value=value, headers={"codec": codec}, on_delivery=lambda e, m: failed.append(e) if e else None)
    assert p.flush(20) == 0
assert not failed, failed

seen, lock, owned = [], threading.Lock(), {}
def member(n, stop):
    c = Consumer({**at, "group.id": "travellers", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    def assigned(_, parts):
        owned[n] = len(parts)
    c.subscribe(["journey"], on_assign=assigned)
    while not stop():
        m = c.poll(0.2)
        if m is None:
            continue
        assert m.error() is None, m.error()
        with lock:
            seen.append(m.value().decode())
        c.commit(m, asynchronous=True)
        owned[n] = len(c.assignment())
    c.commit(asynchronous=False) if c.assignment() and c.position(c.assignment())[0].offset >= 0 else None
    c.close()

deadline = time.time() + 40
both = lambda: set(seen) >= sent and sorted(owned.values()) == [2, 2] or time.time() > deadline
threads = [threading.Thread(target=member, args=(n, both)) for n in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
assert set(seen) == sent, (len(set(seen)), len(sent))
assert sorted(owned.values()) == [2, 2], owned

c = Consumer({**at, "group.id": "travellers"})
committed = c.committed([TopicPartition("journey", p) for p in range(4)], timeout=10)
assert sum(x.offset for x in committed) == len(sent), committed
low, high = c.get_watermark_offsets(TopicPartition("journey", 0), timeout=10)
assert low == 0 and high > 0
c.close()

for f in admin.create_partitions([NewPartitions("journey", 6)]).values():
    f.result(10)
groups = admin.list_consumer_groups().result(10)
assert "travellers" in [g.group_id for g in groups.valid]
described = admin.describe_consumer_groups(["travellers"])["travellers"].result(10)
assert described.state.name == "EMPTY", described.state
admin.delete_consumer_groups(["travellers"])["travellers"].result(10)
for f in admin.delete_topics(["journey"]).values():
    f.result(10)
print("journey done")
