package wire

import (
	"encoding/binary"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

// FetchResponse is an answer to Fetch v4-v18 whose records stay in their files.
type FetchResponse struct {
	Version    int16
	ThrottleMs int32
	ErrorCode  int16 // v7+
	SessionID  int32 // v7+
	Topics     []FetchTopic
	Endpoints  []NodeEndpoint // v16+, tag 0: where the leaders named below are
}

// FetchTopic is named by id from v13 on.
type FetchTopic struct {
	Name       string
	ID         ids.UUID
	Partitions []FetchPartition
}

// FetchPartition is one partition's answer. Offsets are -1 where unknown.
type FetchPartition struct {
	Index            int32
	ErrorCode        int16
	HighWatermark    int64
	LastStableOffset int64
	LogStartOffset   int64
	Diverging        *EpochEnd    // v12+
	Leader           *LeaderEpoch // v12+
	Snapshot         *SnapshotID  // v12+
	Aborted          []AbortedTxn // nil is null: not read_committed
	PreferredReplica int32        // v11+, -1 none
	Records          vfs.Region   // empty is zero bytes, never null (B35)
	Inline           []byte       // records already in memory, instead of Records
}

type EpochEnd struct {
	Epoch     int32
	EndOffset int64
}

type LeaderEpoch struct{ Leader, Epoch int32 }

type SnapshotID struct {
	EndOffset int64
	Epoch     int32
}

type AbortedTxn struct{ ProducerID, FirstOffset int64 }

type NodeEndpoint struct {
	ID   int32
	Host string
	Port int32
	Rack *string
}

// Part is a piece of an answer: bytes, then a file range.
type Part struct {
	Bytes  []byte
	Region vfs.Region
}

// Release gives back every pinned range; the answer must not be sent afterwards.
func (r *FetchResponse) Release() {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			p.Records.Done()
			p.Records = vfs.Region{}
		}
	}
}

// Parts encodes the answer: dst grows by the encoded bytes, and each returned part is a
// span of them followed by the range of the partition that ends there. The parts alias
// the returned buffer; the last part has no range.
func (r *FetchResponse) Parts(dst []byte) (buf []byte, parts []Part, regionBytes int64) {
	e := fetchEncoder{dst: dst, v: r.Version, flex: r.Version >= 12}
	e.i32(r.ThrottleMs)
	if e.v >= 7 {
		e.i16(r.ErrorCode)
		e.i32(r.SessionID)
	}
	e.arrayLen(len(r.Topics))
	for i := range r.Topics {
		t := &r.Topics[i]
		if e.v >= 13 {
			e.dst = append(e.dst, t.ID[:]...)
		} else {
			e.str(t.Name)
		}
		e.arrayLen(len(t.Partitions))
		for j := range t.Partitions {
			e.partition(&t.Partitions[j])
		}
		e.noTags()
	}
	if e.flex {
		e.topTags(r.Endpoints)
	}
	return e.finish()
}

type fetchEncoder struct {
	dst     []byte
	v       int16
	flex    bool
	cuts    []cut
	regions int64
}

type cut struct {
	at     int
	region vfs.Region
}

func (e *fetchEncoder) finish() ([]byte, []Part, int64) {
	parts := make([]Part, 0, len(e.cuts)+1)
	from := 0
	for _, c := range e.cuts {
		parts = append(parts, Part{Bytes: e.dst[from:c.at:c.at], Region: c.region})
		from = c.at
	}
	parts = append(parts, Part{Bytes: e.dst[from:]})
	return e.dst, parts, e.regions
}

func (e *fetchEncoder) partition(p *FetchPartition) {
	e.i32(p.Index)
	e.i16(p.ErrorCode)
	e.i64(p.HighWatermark)
	e.i64(p.LastStableOffset)
	if e.v >= 5 {
		e.i64(p.LogStartOffset)
	}
	if p.Aborted == nil {
		e.nullArray()
	} else {
		e.arrayLen(len(p.Aborted))
		for _, a := range p.Aborted {
			e.i64(a.ProducerID)
			e.i64(a.FirstOffset)
			e.noTags()
		}
	}
	if e.v >= 11 {
		e.i32(p.PreferredReplica)
	}
	e.records(p)
	if e.flex {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) records(p *FetchPartition) {
	n := p.Records.Len + int64(len(p.Inline))
	if e.flex {
		e.dst = binary.AppendUvarint(e.dst, uint64(n)+1)
	} else {
		e.i32(int32(n))
	}
	e.dst = append(e.dst, p.Inline...)
	if p.Records.Len > 0 {
		e.cuts = append(e.cuts, cut{len(e.dst), p.Records})
		e.regions += p.Records.Len
	}
}

func (e *fetchEncoder) partitionTags(p *FetchPartition) {
	n := byte(0)
	for _, set := range []bool{p.Diverging != nil, p.Leader != nil, p.Snapshot != nil} {
		if set {
			n++
		}
	}
	e.dst = append(e.dst, n)
	if d := p.Diverging; d != nil {
		e.dst = append(e.dst, 0, 13)
		e.i32(d.Epoch)
		e.i64(d.EndOffset)
		e.dst = append(e.dst, 0)
	}
	if l := p.Leader; l != nil {
		e.dst = append(e.dst, 1, 9)
		e.i32(l.Leader)
		e.i32(l.Epoch)
		e.dst = append(e.dst, 0)
	}
	if s := p.Snapshot; s != nil {
		e.dst = append(e.dst, 2, 13)
		e.i64(s.EndOffset)
		e.i32(s.Epoch)
		e.dst = append(e.dst, 0)
	}
}

func (e *fetchEncoder) topTags(nodes []NodeEndpoint) {
	if len(nodes) == 0 || e.v < 16 {
		e.dst = append(e.dst, 0)
		return
	}
	inner := fetchEncoder{v: e.v, flex: true}
	inner.arrayLen(len(nodes))
	for _, n := range nodes {
		inner.i32(n.ID)
		inner.str(n.Host)
		inner.i32(n.Port)
		if n.Rack == nil {
			inner.dst = append(inner.dst, 0)
		} else {
			inner.str(*n.Rack)
		}
		inner.noTags()
	}
	e.dst = append(e.dst, 1, 0)
	e.dst = binary.AppendUvarint(e.dst, uint64(len(inner.dst)))
	e.dst = append(e.dst, inner.dst...)
}

func (e *fetchEncoder) i16(v int16) { e.dst = binary.BigEndian.AppendUint16(e.dst, uint16(v)) }
func (e *fetchEncoder) i32(v int32) { e.dst = binary.BigEndian.AppendUint32(e.dst, uint32(v)) }
func (e *fetchEncoder) i64(v int64) { e.dst = binary.BigEndian.AppendUint64(e.dst, uint64(v)) }

func (e *fetchEncoder) str(s string) {
	if e.flex {
		e.dst = binary.AppendUvarint(e.dst, uint64(len(s))+1)
	} else {
		e.i16(int16(len(s)))
	}
	e.dst = append(e.dst, s...)
}

func (e *fetchEncoder) arrayLen(n int) {
	if e.flex {
		e.dst = binary.AppendUvarint(e.dst, uint64(n)+1)
	} else {
		e.i32(int32(n))
	}
}

func (e *fetchEncoder) nullArray() {
	if e.flex {
		e.dst = append(e.dst, 0)
	} else {
		e.i32(-1)
	}
}

func (e *fetchEncoder) noTags() {
	if e.flex {
		e.dst = append(e.dst, 0)
	}
}
