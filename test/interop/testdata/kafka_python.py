"""kafka-python, as its users use it."""
import sys, time
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

at = sys.argv[1]
admin = KafkaAdminClient(bootstrap_servers=at)
admin.create_topics([NewTopic(name="journey", num_partitions=4, replication_factor=1)])
assert "journey" in admin.list_topics()

sent = set()
for codec in [None, "gzip", "snappy", "lz4", "zstd"]:
    p = KafkaProducer(bootstrap_servers=at, compression_type=codec, acks="all")
    futures = []
    for i in range(200):
        value = f"{codec}-{i}"
        sent.add(value)
        futures.append(p.send("journey", key=str(i).encode(), value=value.encode(), headers=[("codec", str(codec).encode())]))
    p.flush(20)
    [f.get(10) for f in futures]
    p.close()

def member():
    return KafkaConsumer("journey", bootstrap_servers=at, group_id="travellers", auto_offset_reset="earliest", enable_auto_commit=False)

seen = set()
one, two = member(), member()
end = time.time() + 45
import threading
stop = threading.Event()
lock = threading.Lock()
owned = {}
def work(n, c):
    while not stop.is_set():
        for batch in c.poll(200).values():
            with lock:
                seen.update(m.value.decode() for m in batch)
        if c.assignment():
            try:
                c.commit()
            except Exception as e:  # in the middle of a rebalance
                if "Rebalance" not in type(e).__name__ and "CommitFailed" not in type(e).__name__:
                    raise
        owned[n] = len(c.assignment())
threads = [threading.Thread(target=work, args=(n, c)) for n, c in enumerate([one, two])]
[t.start() for t in threads]
while time.time() < end and not (seen >= sent and sorted(owned.values()) == [2, 2]):
    time.sleep(0.1)
stop.set()
[t.join() for t in threads]
one.close(), two.close()
assert seen == sent, (len(seen), len(sent))
assert sorted(owned.values()) == [2, 2], owned

again = member()
assert sum(again.committed(TopicPartition("journey", p)) for p in range(4)) == len(sent)
times = again.offsets_for_times({TopicPartition("journey", 0): 0})
assert times[TopicPartition("journey", 0)].offset == 0
again.close()
admin.delete_topics(["journey"])
print("journey done")
