package compare

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the data path answers: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, InitProducerId,
// DescribeProducers.
func init() {
	sweep("produce", 3, 13, produceVersion)
	sweep("fetch", 4, 18, fetchVersion)
	sweep("list-offsets", 1, 11, listOffsetsVersion)
	sweep("leader-epoch", 2, 4, leaderEpochVersion)
	sweep("delete-records", 0, 2, deleteRecordsVersion)
	sweep("init-producer", 0, 5, initProducerVersion)
	sweep("describe-producers", 0, 0, describeProducersVersion)
	for i, name := range codecNames {
		add("codec-"+name, func(s *script) { oneCodec(s, i) })
		add("compression-type-"+name, func(s *script) { compressionType(s, i) })
	}
	add("bad-batches", badBatches)
	add("odd-batches", oddBatches)
	add("timestamps", timestamps)
	add("compacted-topic", compactedTopic)
	add("idempotence", idempotence)
	add("acks", acks)
	add("fetch-limits", fetchLimits)
	add("fetch-waits", fetchWaits)
	sweep("session", 7, 18, fetchSession)
	add("session-errors", sessionErrors)
	add("message-too-large", messageTooLarge)
	add("min-isr", func(s *script) {
		t := s.topic("t", 1, "min.insync.replicas=2")
		s.ask("more replicas asked for than there are", 9, s.produce(t, 0, pack(recs(1))))
	})
}

func produceVersion(s *script, v int16) {
	t, u := s.topic("t", 2), s.topic("u", 1)
	r := s.produce(t, 0, pack(recs(3)))
	s.and(r, t, 1, pack([]rec{keyed("k", "v"), {key: []byte("gone")}, {value: []byte{}, headers: []string{"trace", "abc", "trace", ""}}}))
	s.and(r, u, 0, pack([]rec{stamped(5), stamped(90), stamped(7)}))
	s.ask("three partitions", v, r)
	s.ask("again, behind them", v, r)
	s.ask("no such partition, beside a good one", v, s.and(s.produce(t, 9, pack(recs(1))), u, 0, pack(recs(1))))
	s.ids[s.own("nowhere")] = [16]byte{9, 9}
	s.ask("no such topic", v, s.produce(s.own("nowhere"), 0, pack(recs(1))))
	s.ask("bad checksum", v, s.produce(t, 0, pack(recs(2), func(b *batch) { b.badCRC = true })))
	s.ask("two batches in one partition", v, s.produce(t, 0, append(pack(recs(1)), pack(recs(1))...)))
	s.ask("format 1", v, s.produce(t, 0, legacy(1, "old")))
	s.ask("no bytes", v, s.produce(t, 0, []byte{}))
	s.ask("zstd", v, s.produce(t, 0, pack(recs(9), with(4))))
	for _, acks := range []int16{1, 2, -2} {
		r := s.produce(t, 0, pack(recs(1)))
		r.Acks = acks
		s.ask(fmt.Sprint("acks ", acks), v, r)
	}
	empty := s.produce(t, 0, nil)
	empty.Topics = nil
	s.ask("nothing", v, empty)
	txn := s.produce(t, 0, pack(recs(1)))
	txn.Topics[0].Topic = "bad name!"
	s.ask("a name that no topic can have", v, txn)
	s.ask("what is there", 11, s.fetchAlso(s.fetchAlso(s.fetch(t, 0, 0), t, 1, 0), u, 0, 0))
}

func fetchVersion(s *script, v int16) {
	t, u := s.topic("t", 2), s.topic("u", 1)
	s.put(t, 0, recs(3))
	s.put(t, 0, []rec{stamped(4), stamped(9)})
	s.put(u, 0, recs(2), with(3))
	s.ask("from the start", v, s.fetch(t, 0, 0))
	s.ask("inside a batch", v, s.fetch(t, 0, 1))
	s.ask("the last record", v, s.fetch(t, 0, 4))
	s.ask("the end", v, s.fetch(t, 0, 5))
	s.ask("behind the end", v, s.fetch(t, 0, 6))
	s.ask("before the start", v, s.fetch(t, 0, -1))
	s.ask("an empty partition", v, s.fetch(t, 1, 0))
	s.ask("no such partition", v, s.fetch(t, 7, 0))
	s.ids[s.own("nowhere")] = [16]byte{7, 7}
	s.ask("no such topic, beside a good one", v, s.fetchAlso(s.fetch(s.own("nowhere"), 0, 0), u, 0, 0))
	committed := s.fetch(t, 0, 0)
	committed.IsolationLevel = 1
	s.ask("committed only", v, committed)
	for _, epoch := range []int32{0, 1, -1, -2} {
		r := s.fetch(t, 0, 0)
		r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		s.ask(fmt.Sprint("leader epoch ", epoch), v, r)
	}
	rack := s.fetch(t, 0, 0)
	rack.Rack = "here"
	s.ask("with a rack", v, rack)
	s.ask("several", v, s.fetchAlso(s.fetchAlso(s.fetch(t, 0, 3), t, 1, 0), u, 0, 1))
	twice := s.fetchAlso(s.fetch(t, 0, 0), t, 0, 3)
	s.ask("one partition twice", v, twice)
	if v >= 12 {
		r := s.fetch(t, 0, 5)
		r.Topics[0].Partitions[0].LastFetchedEpoch = 0
		s.ask("last fetched epoch", v, r)
	}
	s.quiet(1, deleteRecords(t, 0, 3))
	s.ask("deleted", v, s.fetch(t, 0, 1))
	s.ask("from the new start", v, s.fetch(t, 0, 3))
}

func listOffsetsVersion(s *script, v int16) {
	t := s.topic("t", 2)
	s.put(t, 0, []rec{stamped(10), stamped(20), stamped(30)})
	s.put(t, 0, []rec{stamped(25), stamped(60), stamped(40)}, with(1))
	for _, at := range []int64{-1, -2, -3, -4, -5, -6, -7} {
		s.ask(fmt.Sprint("special ", at), v, listOffsets(t, 0, at))
		s.ask(fmt.Sprint("special ", at, " of an empty partition"), v, listOffsets(t, 1, at))
	}
	for _, at := range []int64{0, 10, 15, 20, 21, 31, 50, 60, 61} {
		s.ask(fmt.Sprint("at ", at), v, listOffsets(t, 0, epochMs+at))
	}
	s.ask("at 0", v, listOffsets(t, 0, 0))
	s.ask("no such partition", v, listOffsets(t, 5, -1))
	s.ask("no such topic", v, listOffsets(s.own("nowhere"), 0, -1))
	twice := listOffsets(t, 0, -1)
	twice.Topics[0].Partitions = append(twice.Topics[0].Partitions, listOffsets(t, 0, -2).Topics[0].Partitions...)
	s.ask("one partition twice", v, twice)
	for _, epoch := range []int32{0, 1, -2} {
		r := listOffsets(t, 0, -1)
		r.Topics[0].Partitions[0].CurrentLeaderEpoch = epoch
		s.ask(fmt.Sprint("leader epoch ", epoch), v, r)
	}
	r := listOffsets(t, 0, -1)
	r.IsolationLevel = 1
	s.ask("committed only", v, r)
	s.quiet(1, deleteRecords(t, 0, 2))
	s.ask("start after deleting", v, listOffsets(t, 0, -2))
	s.ask("a time that was deleted", v, listOffsets(t, 0, epochMs))
}

func leaderEpochVersion(s *script, v int16) {
	t := s.topic("t", 2)
	s.put(t, 0, recs(4))
	for _, epoch := range []int32{0, 1, 5, -1, -2} {
		s.ask(fmt.Sprint("end of epoch ", epoch), v, leaderEpoch(t, 0, -1, epoch))
	}
	for _, current := range []int32{0, 1, -2} {
		s.ask(fmt.Sprint("current epoch ", current), v, leaderEpoch(t, 0, current, 0))
	}
	s.ask("of an empty partition", v, leaderEpoch(t, 1, -1, 0))
	s.ask("no such partition", v, leaderEpoch(t, 4, -1, 0))
	s.ask("no such topic", v, leaderEpoch(s.own("nowhere"), 0, -1, 0))
	r := leaderEpoch(t, 0, -1, 0)
	r.Topics = nil
	s.ask("nothing", v, r)
}

func deleteRecordsVersion(s *script, v int16) {
	t, c := s.topic("t", 1), s.topic("c", 1, "cleanup.policy=compact")
	s.put(t, 0, recs(6))
	s.put(c, 0, []rec{keyed("k", "v")})
	for _, to := range []int64{3, 3, 1, 7, -5, -2, 6, -1} {
		s.ask(fmt.Sprint("to ", to), v, deleteRecords(t, 0, to))
		s.ask("the start is", 5, listOffsets(t, 0, -2))
	}
	s.ask("compacted", v, deleteRecords(c, 0, 1))
	s.ask("no such partition", v, deleteRecords(t, 5, 0))
	s.ask("no such topic", v, deleteRecords(s.own("nowhere"), 0, 0))
	s.ask("internal", v, deleteRecords("__consumer_offsets", 0, 0))
	two := deleteRecords(t, 0, -1)
	two.Topics = append(two.Topics, deleteRecords(s.own("nowhere"), 0, 0).Topics...)
	s.ask("good and bad", v, two)
	none := deleteRecords(t, 0, 0)
	none.Topics = nil
	s.ask("nothing", v, none)
	s.put(t, 0, recs(2))
	s.ask("what is there", 11, s.fetch(t, 0, 6))
}

func initProducerVersion(s *script, v int16) {
	a := s.ask("a first", v, initProducer()).(*kmsg.InitProducerIDResponse)
	b := s.ask("a second", v, initProducer()).(*kmsg.InitProducerIDResponse)
	s.note("ids differ", a.ProducerID != b.ProducerID)
	r := initProducer()
	r.TransactionTimeoutMillis = 0
	s.ask("no time-out", v, r)
	if v >= 3 {
		r := initProducer()
		r.ProducerID, r.ProducerEpoch = a.ProducerID, a.ProducerEpoch
		s.ask("with its id and epoch", v, r)
		r.ProducerEpoch = -1
		s.ask("with its id alone", v, r)
		r.ProducerID, r.ProducerEpoch = -1, 3
		s.ask("with an epoch alone", v, r)
	}
	empty := initProducer()
	empty.TransactionalID = str("")
	s.ask("empty transactional id", v, empty)
}

func describeProducersVersion(s *script, v int16) {
	t := s.topic("t", 2)
	p := s.ask("a producer", 4, initProducer()).(*kmsg.InitProducerIDResponse)
	s.put(t, 0, recs(2), by(p.ProducerID, p.ProducerEpoch, 0))
	s.put(t, 0, recs(3), by(p.ProducerID, p.ProducerEpoch, 2))
	s.ask("both partitions", v, describeProducers(t, 0, 1))
	s.ask("no such partition", v, describeProducers(t, 0, 7))
	s.ask("no such topic", v, describeProducers(s.own("nowhere"), 0))
	s.ask("a bad name", v, describeProducers("bad name!", 0))
}

func oneCodec(s *script, codec int) {
	t := s.topic("t", 1)
	var rs []rec
	for i := range 40 {
		rs = append(rs, rec{at: int64(i), key: fmt.Appendf(nil, "key %d", i), value: []byte(strings.Repeat("again ", i))})
	}
	s.ask("produce", 9, s.produce(t, 0, pack(rs, with(codec))))
	s.ask("produce to an older version", 3, s.produce(t, 0, pack(rs[:3], with(codec))))
	s.ask("fetch", 15, s.fetch(t, 0, 0))
	s.ask("fetch inside", 15, s.fetch(t, 0, 20))
	s.ask("fetch by an older version", 4, s.fetch(t, 0, 40))
	s.ask("look for a time", 7, listOffsets(t, 0, epochMs+17))
	junk := func(b *batch) { b.payload = []byte("this is no compressed data at all") }
	s.ask("undecodable", 9, s.produce(t, 0, pack(recs(2), with(codec), junk)))
	s.ask("fewer records than declared", 9, s.produce(t, 0, pack(recs(2), with(codec), func(b *batch) { b.count, b.lastDelta = 3, 2 })))
	s.ask("more records than declared", 9, s.produce(t, 0, pack(recs(3), with(codec), func(b *batch) { b.count, b.lastDelta = 2, 1 })))
	s.ask("end", 7, listOffsets(t, 0, -1))
}

func compressionType(s *script, codec int) {
	name := codecNames[codec]
	if codec == 0 {
		name = "uncompressed"
	}
	t := s.topic("t", 1, "compression.type="+name)
	for from := range codecNames {
		s.ask("produced as "+codecNames[from], 9, s.produce(t, 0, pack(recs(5), with(from))))
	}
	s.ask("stored", 12, s.fetch(t, 0, 0))
}

func badBatches(s *script) {
	t := s.topic("t", 1)
	for _, c := range []struct {
		name string
		f    wrong
	}{
		{"bad checksum", func(b *batch) { b.badCRC = true }},
		{"format 3", func(b *batch) { b.magic = 3 }},
		{"length 0", func(b *batch) { b.length = 0 }},
		{"length -1", func(b *batch) { b.length = -1 }},
		{"length 20", func(b *batch) { b.length = 20 }},
		{"length beyond the data", func(b *batch) { b.length = 5000 }},
		{"cut", func(b *batch) { b.cut = 5 }},
		{"cut in the header", func(b *batch) { b.cut = 40 }},
		{"count 0", func(b *batch) { b.count, b.lastDelta = 0, -1 }},
		{"count -1", func(b *batch) { b.count = -1 }},
		{"count too small", func(b *batch) { b.count = 1 }},
		{"count too large", func(b *batch) { b.count = 9 }},
		{"count huge", func(b *batch) { b.count, b.lastDelta = 1<<31-1, 1<<31-2 }},
		{"last delta too small", func(b *batch) { b.lastDelta = 0 }},
		{"last delta too large", func(b *batch) { b.lastDelta = 7 }},
		{"control batch", func(b *batch) { b.attributes = 1 << 5 }},
		{"transactional without an id", func(b *batch) { b.attributes = 1 << 4 }},
		{"producer without a sequence", func(b *batch) { b.producer, b.epoch = 77, 0 }},
		{"base offset 5", func(b *batch) { b.base = 5 }},
		{"leader epoch 9", func(b *batch) { b.leaderEpoch = 9 }},
		{"a length in a record is negative", func(b *batch) { b.payload = []byte{1, 0, 0, 0, 0, 0, 0} }},
		{"no bytes of records", func(b *batch) { b.payload = []byte{} }},
		{"zeros", func(b *batch) { b.payload = make([]byte, 30) }},
		{"codec 5", func(b *batch) { b.codec = 5 }},
		{"codec 7", func(b *batch) { b.codec = 7 }},
	} {
		s.ask(c.name, 9, s.produce(t, 0, pack(recs(2), c.f)))
		s.ask("end", 7, listOffsets(t, 0, -1))
	}
	s.ask("format 0", 9, s.produce(t, 0, legacy(0, "a")))
	s.ask("format 1", 9, s.produce(t, 0, legacy(1, "a", "b")))
	s.ask("not a batch", 9, s.produce(t, 0, []byte("what is this that is long enough for a header, a whole header of sixty-one bytes?")))
	s.ask("what is there", 12, s.fetch(t, 0, 0))
}

func oddBatches(s *script) {
	t := s.topic("t", 1)
	for _, c := range []struct {
		name string
		f    wrong
	}{
		{"garbage behind", func(b *batch) { b.trailing = []byte("xyz") }},
		{"half a batch behind", func(b *batch) { b.trailing = pack(recs(3))[:70] }},
		{"attribute bit 6", func(b *batch) { b.attributes = 1 << 6 }},
		{"log append time", func(b *batch) { b.attributes = 1 << 3 }},
		{"producer -2", func(b *batch) { b.producer = -2 }},
		{"deltas with a hole", func(b *batch) { b.recs[1].delta, b.lastDelta = 2, 2 }},
		{"first timestamp wrong", func(b *batch) { b.first = epochMs - 50 }},
		{"max timestamp wrong", func(b *batch) { b.max = epochMs + 5000 }},
	} {
		s.ask(c.name, 9, s.produce(t, 0, pack(recs(2), c.f)))
		s.ask("end", 7, listOffsets(t, 0, -1))
	}
	s.ask("what is there", 12, s.fetch(t, 0, 0))
}

func timestamps(s *script) {
	limited := s.topic("limited", 1, "message.timestamp.before.max.ms=1000", "message.timestamp.after.max.ms=1000")
	s.ask("too old", 9, s.produce(limited, 0, pack(recs(2))))
	now := time.Now().UnixMilli() - epochMs
	s.ask("of today", 9, s.produce(limited, 0, pack([]rec{stampedQuietly(now)})))
	s.ask("one of three of tomorrow", 9, s.produce(limited, 0, pack([]rec{stampedQuietly(now), stampedQuietly(now + 86400_000), stampedQuietly(now)})))
	s.ask("without a time", 9, s.produce(limited, 0, pack([]rec{stampedQuietly(-1 - epochMs)})))
	ours := s.topic("ours", 1, "message.timestamp.type=LogAppendTime")
	s.ask("server's time", 9, s.produce(ours, 0, pack(recs(2))))
	s.ask("server's time, compressed", 9, s.produce(ours, 0, pack(recs(2), with(1))))
	s.ask("already marked so", 9, s.produce(ours, 0, pack(recs(1), func(b *batch) { b.attributes = 1 << 3 })))
	s.ask("stored", 12, s.fetch(ours, 0, 0))
	s.ask("largest", 7, listOffsets(ours, 0, -3))
	free := s.topic("free", 1)
	s.ask("no time, no limit", 9, s.produce(free, 0, pack([]rec{stampedQuietly(-1 - epochMs)}, func(b *batch) { b.first, b.max = -1, -1; b.recs[0].at = 0 })))
	s.ask("stored as", 12, s.fetch(free, 0, 0))
}

func stampedQuietly(at int64) rec { return rec{at: at, value: []byte("x")} }

func compactedTopic(s *script) {
	t := s.topic("t", 1, "cleanup.policy=compact")
	for _, v := range []int16{7, 9} {
		s.ask("a record without a key", v, s.produce(t, 0, pack([]rec{keyed("a", "1"), value("2"), keyed("b", "3")})))
	}
	s.ask("the same, compressed", 9, s.produce(t, 0, pack([]rec{keyed("a", "1"), value("2")}, with(1))))
	s.ask("with keys", 9, s.produce(t, 0, pack([]rec{keyed("a", "1"), keyed("", "2"), {key: []byte("a")}})))
	s.ask("what is there", 12, s.fetch(t, 0, 0))
}

func idempotence(s *script) {
	t := s.topic("t", 1)
	p := s.ask("a producer", 4, initProducer()).(*kmsg.InitProducerIDResponse)
	send := func(label string, sequence int32, n int) {
		s.ask(label, 9, s.produce(t, 0, pack(recs(n), by(p.ProducerID, p.ProducerEpoch, sequence))))
	}
	for i := range int32(5) {
		send(fmt.Sprint("batch ", i), i*2, 2)
	}
	for i := range int32(5) {
		send(fmt.Sprint("batch ", i, " again"), i*2, 2)
	}
	send("batch 5", 10, 2)
	send("batch 0, forgotten", 0, 2)
	send("half of batch 5", 10, 1)
	send("a gap", 20, 1)
	send("next", 12, 1)
	s.ask("two producers' batches in one", 9, s.produce(t, 0, append(pack(recs(1), by(p.ProducerID, p.ProducerEpoch, 13)), pack(recs(1), by(p.ProducerID, p.ProducerEpoch, 14))...)))
	s.ask("a newer epoch that starts at 0", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID, p.ProducerEpoch+1, 0))))
	s.ask("a newer epoch that does not", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID, p.ProducerEpoch+2, 5))))
	s.ask("the older epoch", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID, p.ProducerEpoch, 14))))
	s.ask("an unknown producer in the middle", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID+100000, 0, 55))))
	s.ask("and on", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID+100000, 0, 56))))
	s.ask("the largest sequence", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID+200000, 0, 1<<31-1))))
	s.ask("which is followed by 0", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID+200000, 0, 0))))
	s.ask("epoch -1", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID, -1, 3))))
	s.ask("sequence -1", 9, s.produce(t, 0, pack(recs(1), by(p.ProducerID, p.ProducerEpoch, -1))))
	s.ask("end", 7, listOffsets(t, 0, -1))
	s.ask("producers", 0, describeProducers(t, 0))
}

func acks(s *script) {
	t := s.topic("t", 1)
	none := s.produce(t, 0, pack(recs(1)))
	none.Acks = 0
	s.unanswered("acks 0", 9, none)
	s.until("arrived", 7, listOffsets(t, 0, -1), func(r kmsg.Response) bool {
		return r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset == 1
	})
	bad := s.produce(t, 0, pack(recs(1), func(b *batch) { b.badCRC = true }))
	bad.Acks = 0
	s.unanswered("acks 0 with bad records", 9, bad)
	gone := s.produce(s.own("nowhere"), 0, pack(recs(1)))
	gone.Acks = 0
	s.unanswered("acks 0 to no topic", 9, gone)
	s.ask("end", 7, listOffsets(t, 0, -1))
}

func fetchLimits(s *script) {
	t, u := s.topic("t", 1), s.topic("u", 1)
	for range 3 {
		s.put(t, 0, []rec{value(strings.Repeat("t", 1000))})
		s.put(u, 0, []rec{value(strings.Repeat("u", 1000))})
	}
	for _, limit := range [][2]int32{{1, 1}, {1500, 1 << 20}, {1 << 20, 1500}, {2500, 1100}, {0, 1 << 20}, {1 << 20, 0}, {1100, 1100}, {2200, 1200}} {
		r := s.fetchAlso(s.fetch(t, 0, 0), u, 0, 0)
		r.MaxBytes, r.Topics[0].Partitions[0].PartitionMaxBytes, r.Topics[1].Partitions[0].PartitionMaxBytes = limit[0], limit[1], limit[1]
		s.ask(fmt.Sprintf("at most %d, %d a partition", limit[0], limit[1]), 12, r)
	}
}

func fetchWaits(s *script) {
	t := s.topic("t", 1)
	r := s.fetch(t, 0, 0)
	r.MinBytes, r.MaxWaitMillis = 1, 200
	start := time.Now()
	s.ask("nothing comes", 12, r)
	s.note("waited", time.Since(start) >= 180*time.Millisecond)
	r.MaxWaitMillis = 10000
	p := s.begin("consumer", "something comes", 12, r)
	p.waits(moment)
	s.put(t, 0, recs(1))
	p.end()
	r = s.fetch(t, 0, 1)
	r.MinBytes, r.MaxWaitMillis = 300, 10000
	p = s.begin("consumer", "enough comes", 12, r)
	s.put(t, 0, recs(1))
	p.waits(moment)
	s.put(t, 0, []rec{value(strings.Repeat("v", 300))})
	p.end()
	bad := s.fetch(t, 0, 99)
	bad.MinBytes, bad.MaxWaitMillis = 1, 10000
	start = time.Now()
	s.ask("an error does not wait", 12, bad)
	s.note("at once", time.Since(start) < 2*time.Second)
}

func fetchSession(s *script, v int16) {
	t, u := s.topic("t", 2), s.topic("u", 1)
	s.put(t, 0, recs(3))
	s.put(u, 0, recs(1))
	first := s.fetchAlso(s.fetchAlso(s.fetch(t, 0, 0), t, 1, 0), u, 0, 0)
	first.SessionEpoch = 0
	id := s.ask("opens", v, first).(*kmsg.FetchResponse).SessionID
	next := func(label string, epoch int32, change func(*kmsg.FetchRequest)) {
		r := s.fetch(t, 0, 0)
		r.Topics, r.SessionID, r.SessionEpoch = nil, id, epoch
		if change != nil {
			change(r)
		}
		s.ask(label, v, r)
	}
	next("moves on", 1, func(r *kmsg.FetchRequest) { s.fetchAlso(s.fetchAlso(r, t, 0, 3), u, 0, 1) })
	next("nothing new", 2, nil)
	s.put(t, 1, recs(2))
	next("something new", 3, nil)
	next("forgets", 4, func(r *kmsg.FetchRequest) {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.TopicID, f.Partitions = t, s.ids[t], []int32{1}
		r.ForgottenTopics = append(r.ForgottenTopics, f)
	})
	s.put(u, 0, recs(1))
	next("what is left", 5, nil)
	next("an error in it", 6, func(r *kmsg.FetchRequest) { s.fetchAlso(r, t, 0, 77) })
	next("which stays", 7, nil)
	next("no such partition in it", 8, func(r *kmsg.FetchRequest) { s.fetchAlso(r, t, 6, 0) })
	next("a stale epoch", 3, nil)
	next("closes", -1, nil)
	next("is closed", 9, nil)
}

func sessionErrors(s *script) {
	t := s.topic("t", 1)
	for _, c := range [][2]int32{{0, 1}, {5, 0}, {12345678, 1}, {12345678, -1}, {-1, 0}, {0, -2}} {
		r := s.fetch(t, 0, 0)
		r.SessionID, r.SessionEpoch = c[0], c[1]
		s.ask(fmt.Sprintf("session %d epoch %d", c[0], c[1]), 12, r)
	}
	r := s.fetch(t, 0, 0)
	r.Topics, r.SessionEpoch = nil, 0
	s.ask("a session of nothing", 12, r)
	r.SessionEpoch = -1
	s.ask("nothing without a session", 12, r)
}

func messageTooLarge(s *script) {
	t := s.topic("t", 1, "max.message.bytes=600")
	s.ask("too large", 9, s.produce(t, 0, pack([]rec{value(strings.Repeat("x", 700))})))
	s.ask("small when compressed", 9, s.produce(t, 0, pack([]rec{value(strings.Repeat("x", 700))}, with(1))))
	s.ask("fits", 9, s.produce(t, 0, pack([]rec{value(strings.Repeat("x", 500))})))
	s.ask("one of two", 9, s.produce(t, 0, append(pack(recs(1)), pack([]rec{value(strings.Repeat("x", 700))})...)))
	s.ask("end", 7, listOffsets(t, 0, -1))
	big := s.topic("big", 1, "segment.bytes=1048576", "max.message.bytes=4000000")
	s.ask("larger than a segment", 9, s.produce(big, 0, pack([]rec{value(strings.Repeat("x", 1100000))})))
}
