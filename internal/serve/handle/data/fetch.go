package data

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/vfs"
	"runnel/internal/meta/image"
	"runnel/internal/repl/partition"
	"runnel/internal/serve/api"
	"runnel/internal/wire"
)

// fetch serves Fetch v4-v18: sessions (KIP-227), long poll, read_committed with the
// aborted list, divergence (KIP-595), leader hints (KIP-951). Spec: semantics.md 6.
func (d *Data) fetch(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.FetchRequest)
	f := &fetchCall{d: d, rq: rq, req: req, now: d.opts.Now(), img: d.opts.Image()}
	f.replica = req.ReplicaID
	if req.Version >= 15 {
		f.replica = req.ReplicaState.ID
	}
	if err := f.open(); err != nil {
		return api.Reply{Fetch: &wire.FetchResponse{Version: req.Version, ErrorCode: api.Code(err)}}
	}
	defer f.close()
	f.run(ctx)
	return api.Reply{Fetch: f.response()}
}

// fetchCall is one fetch request at work.
type fetchCall struct {
	d       *Data
	rq      *api.Request
	req     *kmsg.FetchRequest
	img     *image.Image
	now     time.Time
	replica int32
	set     *slots
	sess    *session // nil: sessionless
	full    bool     // answer every partition, not only news
	order   []*slot  // visited slots, in the order of the answer
	bytes   int      // of records in it
	urgent  bool     // something in it may not wait
}

// open settles which partitions are looked at (semantics.md 6.1).
func (f *fetchCall) open() error {
	req := f.req
	if req.Version >= 7 && req.SessionEpoch != 0 && req.SessionEpoch != -1 {
		x, err := f.d.sessions.begin(req, f.now)
		if err != nil {
			return err
		}
		f.sess, f.set = x, x.set
		f.take()
		if f.set.live == 0 {
			f.d.sessions.remove(x.id)
			f.d.sessions.end(x)
			f.sess, f.full = nil, true
		}
		return nil
	}
	if req.Version >= 7 && req.SessionID != 0 {
		f.d.sessions.remove(req.SessionID)
	}
	f.full = true
	f.set = newSlots(req.Version >= 13, len(req.Topics))
	f.take()
	if req.Version >= 7 && req.SessionEpoch == 0 {
		f.sess = f.d.sessions.create(f.set, f.replica >= 0, f.now)
	}
	return nil
}

func (f *fetchCall) take() {
	for i := range f.req.ForgottenTopics {
		t := &f.req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			f.set.forget(t.Topic, t.TopicID, p)
		}
	}
	for i := range f.req.Topics {
		t := &f.req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			sl := f.set.put(t.Topic, t.TopicID, p.Partition)
			sl.offset, sl.maxBytes, sl.lastFetched, sl.epoch = p.FetchOffset, p.PartitionMaxBytes, -1, -1
			if f.req.Version >= 9 && p.CurrentLeaderEpoch >= 0 { // any below 0 is none (measured.md 14)
				sl.epoch = p.CurrentLeaderEpoch
			}
			if f.req.Version >= 12 {
				sl.lastFetched = p.LastFetchedEpoch
			}
		}
	}
}

// close gives the session back, or ends what a sessionless fetch watched.
func (f *fetchCall) close() {
	for _, sl := range f.order {
		sl.res.Records = vfs.Region{} // the reply owns it now
		sl.visited = false
	}
	if f.sess != nil {
		f.d.sessions.end(f.sess)
	} else {
		f.set.close()
	}
}

// run reads marked partitions until the answer is large enough, urgent or late.
func (f *fetchCall) run(ctx api.Context) {
	if f.sess != nil {
		f.set.watchAll() // a session lives by its marks: watch before the first look
	}
	f.visit()
	minBytes := min(int(f.req.MinBytes), f.maxBytes())
	enough := func() bool {
		return f.urgent || f.bytes >= minBytes || f.req.MaxWaitMillis <= 0 || len(f.set.byKey) == 0
	}
	if enough() {
		return
	}
	if !f.set.watch {
		// What changed between the first look and the watching was not marked.
		f.set.watchAll()
		for _, sl := range f.set.all {
			if sl != nil {
				f.set.mark(sl.tag)
			}
		}
		f.visit()
	}
	timer := time.NewTimer(until(f.now, f.req.MaxWaitMillis).Sub(f.d.opts.Now()))
	defer timer.Stop()
	for !enough() {
		select {
		case <-f.set.flag:
			f.img = f.d.opts.Image()
			f.visit()
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (f *fetchCall) maxBytes() int {
	limit := f.d.opts.FetchMax
	if f.replica >= 0 {
		return int(f.req.MaxBytes)
	}
	return min(int(f.req.MaxBytes), limit)
}

// visit reads every marked slot, in order, within the limits.
func (f *fetchCall) visit() {
	for _, sl := range f.set.take() {
		if sl.visited { // news of a slot already in the answer: read it anew
			f.bytes -= int(sl.res.Records.Len)
			sl.res.Records.Done()
		} else {
			sl.visited = true
			f.order = append(f.order, sl)
		}
		sl.res = f.read(sl)
		f.bytes += int(sl.res.Records.Len)
		if sl.res.Err != nil || sl.res.Diverging != nil {
			f.urgent = true
		}
	}
}

func (f *fetchCall) read(sl *slot) partition.Fetched {
	f.set.resolve(f.d, f.img, sl)
	if sl.err != nil {
		return partition.Fetched{Err: sl.err, HighWatermark: -1, LastStable: -1, LogStart: -1}
	}
	isolation, err := f.isolation(sl)
	if err != nil {
		return partition.Fetched{Err: err, HighWatermark: -1, LastStable: -1, LogStart: -1}
	}
	left := f.maxBytes() - f.bytes
	r := sl.replica.Fetch(partition.Fetch{
		Offset: sl.offset, MaxBytes: max(0, min(int(sl.maxBytes), left)), AtLeastOne: f.bytes == 0,
		CurrentEpoch: sl.epoch, LastFetchedEpoch: sl.lastFetched, Isolation: isolation,
		FollowerOK: f.replica < 0 && f.req.Version >= 11,
	})
	if f.replica >= 0 && r.Err == nil && r.Diverging == nil {
		sl.replica.FollowerFetched(f.replica, sl.offset)
	}
	return r
}

func (f *fetchCall) isolation(sl *slot) (partition.Isolation, error) {
	if sl.maxBytes < 0 || f.req.MaxBytes < 0 {
		return 0, fmt.Errorf("a fetch limit is negative: %w", kerr.InvalidRequest)
	}
	if f.replica >= 0 {
		for _, r := range sl.replica.State().Replicas {
			if r == f.replica {
				return partition.LogEnd, nil
			}
		}
		if sl.epoch >= 0 {
			return 0, kerr.UnknownLeaderEpoch
		}
		return 0, kerr.NotLeaderForPartition
	}
	switch f.req.IsolationLevel {
	case 0:
		return partition.Uncommitted, nil
	case 1:
		return partition.Committed, nil
	}
	return 0, fmt.Errorf("isolation level is %d; it may be 0 or 1: %w", f.req.IsolationLevel, kerr.InvalidRequest)
}

// news reports whether an incremental answer names the slot.
func news(sl *slot) bool {
	r := &sl.res
	return r.Records.Len > 0 || r.Err != nil || r.Diverging != nil || r.HighWatermark != sl.sentHW || r.LogStart != sl.sentStart
}

// response gathers the visited slots into the answer, topics in order of appearance.
func (f *fetchCall) response() *wire.FetchResponse {
	out := &wire.FetchResponse{Version: f.req.Version}
	if f.sess != nil {
		out.SessionID = f.sess.id
	}
	at := map[slotKey]int{}
	var leaders []int32
	for _, sl := range f.order {
		if sl.gone || !f.full && !news(sl) {
			sl.res.Records.Done()
			continue
		}
		k := slotKey{topic: sl.topic}
		if f.set.byID {
			k = slotKey{topicID: sl.topicID}
		}
		i, ok := at[k]
		if !ok {
			i = len(out.Topics)
			at[k] = i
			out.Topics = append(out.Topics, wire.FetchTopic{Name: sl.topic, ID: sl.topicID})
		}
		p := f.partition(sl)
		if p.Leader != nil {
			leaders = append(leaders, p.Leader.Leader)
		}
		out.Topics[i].Partitions = append(out.Topics[i].Partitions, p)
		f.remember(sl)
	}
	out.Endpoints = f.endpoints(leaders)
	return out
}

// remember notes what the client knows now, and marks slots that must be looked at in
// any case next time: unresolved ones, those with an error, and those that gave records
// and may have more.
func (f *fetchCall) remember(sl *slot) {
	sl.sentHW, sl.sentStart = sl.res.HighWatermark, sl.res.LogStart
	if f.sess == nil {
		return
	}
	if sl.res.Err != nil {
		sl.sentHW = -1
	}
	if sl.res.Err != nil || sl.res.Records.Len > 0 || sl.offset < sl.res.HighWatermark {
		f.set.mark(sl.tag)
	}
}

func (f *fetchCall) partition(sl *slot) wire.FetchPartition {
	r := &sl.res
	p := wire.FetchPartition{
		Index: sl.index, ErrorCode: f.code(r.Err), HighWatermark: r.HighWatermark, LastStableOffset: r.LastStable,
		LogStartOffset: r.LogStart, PreferredReplica: -1, Records: r.Records,
	}
	if r.Aborted != nil {
		p.Aborted = make([]wire.AbortedTxn, len(r.Aborted))
		for i, a := range r.Aborted {
			p.Aborted[i] = wire.AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.First}
		}
	}
	if r.Diverging != nil {
		p.Diverging = &wire.EpochEnd{Epoch: r.Diverging.Epoch, EndOffset: r.Diverging.EndOffset}
	}
	if f.req.Version >= 16 && (p.ErrorCode == kerr.NotLeaderForPartition.Code || p.ErrorCode == kerr.FencedLeaderEpoch.Code) {
		leader, epoch := leaderOf(f.img, sl.topic, sl.index)
		p.Leader = &wire.LeaderEpoch{Leader: leader, Epoch: epoch}
	}
	return p
}

func (f *fetchCall) code(err error) int16 {
	code := api.Code(err)
	if code == kerr.KafkaStorageError.Code && f.req.Version <= 5 {
		return kerr.NotLeaderForPartition.Code
	}
	return code
}

func (f *fetchCall) endpoints(leaders []int32) []wire.NodeEndpoint {
	var out []wire.NodeEndpoint
	for i, id := range leaders {
		b := f.img.Broker(id)
		if b == nil || slices.Contains(leaders[:i], id) {
			continue
		}
		if e, ok := b.Endpoint(f.rq.Listener); ok {
			out = append(out, wire.NodeEndpoint{ID: id, Host: e.Host, Port: int32(e.Port), Rack: b.Rack})
		}
	}
	return out
}
