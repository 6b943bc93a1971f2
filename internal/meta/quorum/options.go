package quorum

import (
	"context"
	"iter"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/commitlog"
)

// Log is the metadata log; commitlog.Log is one.
type Log interface {
	AppendAsIs(batches []byte) (last int64, err error)
	Read(offset, upper int64, maxBytes int, atLeastOne bool) (commitlog.Read, error)
	Offsets() commitlog.Offsets
	Flush() error
	AdvanceHighWatermark(hw int64) bool
	EpochEnd(epoch int32) (int32, int64)
	LatestEpoch() int32
	AssignEpoch(epoch int32, start int64) error
	TruncateTo(offset int64) error
	TruncateFully(startAt int64) error
	RaiseLogStart(offset int64) error
	Size() int64
	DeleteOld(now time.Time) (int, error)
	Failed() error
}

// Listener is told what is committed and who leads: from one goroutine at a time, in log
// order, with no lock held.
type Listener interface {
	// Committed is one batch below the high watermark. Control batches come without
	// records, so that offsets have no gaps.
	Committed(records [][]byte, lastOffset int64, epoch int32, timestamp int64)
	// Snapshot replaces everything.
	Snapshot(values iter.Seq2[[]byte, error], id SnapshotID)
	// Leading says that this node leads, has been told of everything before, and that the
	// next record it appends gets endOffset.
	Leading(epoch int32, endOffset int64)
	// NotLeading says who leads the epoch instead, -1 if that is not known.
	NotLeading(epoch, leaderID int32)
}

// Destination is a node to send to. Bootstrap servers have ids from -2 down.
type Destination struct {
	ID   int32
	Host string
	Port uint16
}

// Sender asks a node and waits for its answer.
type Sender func(ctx context.Context, to Destination, rq kmsg.Request) (kmsg.Response, error)

// Options configures a Quorum.
type Options struct {
	FS          vfs.FS
	Dir         string // of the metadata log: .../__cluster_metadata-0
	ClusterID   string
	NodeID      int32
	DirectoryID ids.UUID
	Controller  bool       // the node has the controller role
	Voters      VoterSet   // controller.quorum.voters; ignored where voters are in the log
	Bootstrap   []Endpoint // controller.quorum.bootstrap.servers
	Endpoints   []Endpoint // own controller listeners, the default one first
	Listener    string     // name of the listener that peers are asked on
	Log         Log
	Now         func() time.Time
	Random      func() uint64
	Logger      *slog.Logger
	Timing      Timing

	FetchMaxBytes    int32 // controller.quorum.fetch.max.bytes
	SnapshotMaxBytes int32 // controller.quorum.fetch.snapshot.max.bytes
	RetentionBytes   int64 // metadata.max.retention.bytes, negative off
	RetentionMs      int64 // metadata.max.retention.ms, negative off

	Send  Sender
	State Listener
	// Fatal is called once when the quorum cannot go on: its disk failed, or a record that
	// every replica must understand cannot be read.
	Fatal func(error)
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.Timing.Election, time.Second)
	def(&o.Timing.Fetch, 2*time.Second)
	def(&o.Timing.Request, 2*time.Second)
	def(&o.Timing.Retry, 20*time.Millisecond)
	def(&o.Timing.BackoffMax, time.Second)
	if o.FetchMaxBytes == 0 {
		o.FetchMaxBytes = 1 << 20
	}
	if o.SnapshotMaxBytes == 0 {
		o.SnapshotMaxBytes = 1 << 20
	}
	if o.RetentionBytes == 0 {
		o.RetentionBytes = 100 << 20
	}
	if o.RetentionMs == 0 {
		o.RetentionMs = 7 * 24 * 3600 * 1000
	}
	if o.Listener == "" && len(o.Endpoints) > 0 {
		o.Listener = o.Endpoints[0].Name
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Fatal == nil {
		o.Fatal = func(error) {}
	}
	return o
}
