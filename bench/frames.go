package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/record"
)

// Frames are encoded once and sent many times; only the correlation id, and a fetch's offset, are written anew.
const (
	produceVersion = 11 // the newest with topic names
	fetchVersion   = 12
	correlationAt  = 8 // in a request frame, behind size, key and version
)

var be = binary.BigEndian

var formatter = kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench"))

// shape is how a load's batches look.
type shape struct {
	codec   record.Codec
	records int
	value   int // bytes of each record's value, before compression
}

// user is what a batch carries for its user.
func (s shape) user() int64 { return int64(s.records * s.value) }

func (s shape) batch() record.Batch {
	b := record.Builder{Codec: s.codec, Timestamp: time.Now().UnixMilli()}
	words := words(s.records * s.value)
	for i := range s.records {
		b.Add(nil, words[i*s.value:(i+1)*s.value])
	}
	return b.Build()
}

// words is text that compresses about as events in JSON do, the same in every run.
func words(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	var b bytes.Buffer
	for b.Len() < n {
		fmt.Fprintf(&b, `{"id":%d,"user":"u%08x","kind":"%s","at":%d,"ok":%t,"price":%d.%02d},`,
			b.Len(), r.Uint32(), []string{"view", "click", "order", "return"}[r.IntN(4)], 1700000000000+r.Int64N(1e9), r.IntN(2) == 0, r.IntN(1000), r.IntN(100))
	}
	return b.Bytes()[:n]
}

// produceFrame is a Produce request of one batch with its size in front.
func produceFrame(topic string, partition int32, batch record.Batch) []byte {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	q := kmsg.NewPtrProduceRequest()
	q.Version, q.Acks, q.TimeoutMillis, q.Topics = produceVersion, 1, 30000, append(q.Topics, t)
	return formatter.AppendRequest(nil, q, 0)
}

// produceErrorAt is where the partition's error is in the answer's frame: behind size, correlation id, header tags,
// array, name, array and partition.
func produceErrorAt(topic string) int { return 4 + 4 + 1 + 1 + 1 + len(topic) + 1 + 4 }

// fetchFrame is a sessionless Fetch of one partition, and where its offset is.
func fetchFrame(topic string, partition int32, maxBytes, minBytes int32, wait time.Duration) (frame []byte, offsetAt int) {
	const mark = 0x6d61726b6d61726b
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.FetchOffset, p.PartitionMaxBytes = partition, -1, mark, maxBytes
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	q := kmsg.NewPtrFetchRequest()
	q.Version, q.ReplicaID, q.SessionID, q.SessionEpoch = fetchVersion, -1, 0, -1
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.Topics = int32(wait.Milliseconds()), minBytes, 50<<20, append(q.Topics, t)
	frame = formatter.AppendRequest(nil, q, 0)
	return frame, bytes.Index(frame, be.AppendUint64(nil, mark))
}

// fetchHead is the part of the answer's frame before the size of the records. Its error is at fetchErrorAt.
func fetchHead(topic string) int    { return fetchErrorAt(topic) + 2 + 8 + 8 + 8 + 1 + 4 }
func fetchErrorAt(topic string) int { return 4 + 4 + 1 + 4 + 2 + 4 + 1 + 1 + len(topic) + 1 + 4 }
