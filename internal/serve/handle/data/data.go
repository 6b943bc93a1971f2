package data

import (
	"context"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/repl/partition"
	"runnel/internal/serve/api"
)

// Replicas finds the replicas that this broker hosts.
type Replicas interface {
	Get(tp ids.TopicPartition) *partition.Partition // nil if not hosted
}

// ProducerIDs gives each caller a producer id that nobody else has or had.
type ProducerIDs interface {
	Next(ctx context.Context) (int64, error)
}

// Options make a Data.
type Options struct {
	NodeID       int32
	Image        func() *image.Image
	Replicas     Replicas
	ProducerIDs  ProducerIDs
	Now          func() time.Time
	Random       func() uint64
	FetchMax     int // fetch.max.bytes
	SessionSlots int // max.incremental.fetch.session.cache.slots
}

// Data serves the record APIs.
type Data struct {
	opts     Options
	sessions *sessions
}

// New makes the handlers; Register puts them in a broker listener's registry.
func New(o Options) *Data {
	return &Data{opts: o, sessions: newSessions(o.SessionSlots, o.Random)}
}

// Register adds the APIs and the versions of Kafka 4.4.
func (d *Data) Register(r *api.Registry) {
	r.Add(api.API{Key: int16(kmsg.Produce), Min: 3, Max: 13, AdvertisedMin: 0, Aliases: true, Handle: d.produce})
	r.Add(api.API{Key: int16(kmsg.Fetch), Min: 4, Max: 18, Aliases: true, Handle: d.fetch})
	r.Add(api.API{Key: int16(kmsg.ListOffsets), Min: 1, Max: 11, Handle: d.listOffsets})
	r.Add(api.API{Key: int16(kmsg.OffsetForLeaderEpoch), Min: 2, Max: 4, Handle: d.offsetForLeaderEpoch})
	r.Add(api.API{Key: int16(kmsg.DeleteRecords), Min: 0, Max: 2, Handle: d.deleteRecords})
	r.Add(api.API{Key: int16(kmsg.DescribeProducers), Min: 0, Max: 0, Handle: d.describeProducers})
	r.Add(api.API{Key: int16(kmsg.InitProducerID), Min: 0, Max: 5, Handle: d.initProducerID})
}

// Sessions is the number of fetch sessions and of the partitions in them.
func (d *Data) Sessions() (sessions, partitions int) { return d.sessions.size() }

// find gets a hosted replica, or the error that says why there is none.
func (d *Data) find(img *image.Image, topic string, index int32) (*partition.Partition, error) {
	if p := d.opts.Replicas.Get(ids.TopicPartition{Topic: topic, Partition: index}); p != nil {
		return p, nil
	}
	if img.Topic(topic).Partition(index) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	return nil, kerr.NotLeaderForPartition
}

// leaderOf is the leader and epoch that the image knows, -1 where unknown, with the
// leader's address on the caller's listener.
func leaderOf(img *image.Image, topic string, index int32) (leader, epoch int32) {
	if p := img.Topic(topic).Partition(index); p != nil {
		return p.Leader, p.LeaderEpoch
	}
	return -1, -1
}

// until turns a request's time-out in ms into a deadline that cannot overflow.
func until(now time.Time, ms int32) time.Time {
	if ms < 0 {
		ms = 0
	}
	return now.Add(time.Duration(min(int64(ms), math.MaxInt32)) * time.Millisecond)
}
