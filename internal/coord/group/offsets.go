package group

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/record"
)

// validateCommit decides who may commit. Spec: coordinator-records.md 4.
func (s *Shard) validateCommit(rq *kmsg.OffsetCommitRequest, now time.Time) *kerr.Error {
	g := s.groups[rq.Group]
	switch {
	case g == nil && rq.Generation < 0:
		return nil // a simple group begins
	case g == nil && rq.Version >= 9:
		return kerr.GroupIDNotFound
	case g == nil:
		return kerr.IllegalGeneration
	case g.kind != Classic:
		// Members of other protocols are not served here; an administrator may commit
		// once none can be alive.
		if rq.Generation < 0 && !s.inUse(g, now) && g.kind != Share {
			return nil
		}
		return kerr.UnknownMemberID
	case rq.Generation < 0 && g.state == Empty:
		return nil
	case rq.Generation >= 0 || rq.MemberID != "" || rq.InstanceID != nil:
		if e := g.check(rq.MemberID, rq.InstanceID); e != nil {
			return e
		}
		if rq.Generation != g.generation {
			return kerr.IllegalGeneration
		}
	case g.state != Empty:
		return kerr.UnknownMemberID
	}
	if g.state == CompletingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}

// Commit decides an OffsetCommit request whose topics the handler has resolved: by name,
// with the id where it is known.
func (s *Shard) Commit(rq *kmsg.OffsetCommitRequest, answer func(*kmsg.OffsetCommitResponse), now time.Time) []runtime.Result {
	if e := s.validateCommit(rq, now); e != nil {
		answer(failedCommit(rq, e.Code))
		return nil
	}
	g := s.group(rq.Group)
	s.armExpiry(now)
	if m := g.members[rq.MemberID]; m != nil && g.kind == Classic {
		s.keepAlive(g, m, now)
	}
	resp := rq.ResponseKind().(*kmsg.OffsetCommitResponse)
	res := runtime.Result{}
	var undo []func()
	for _, t := range rq.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			if p.Metadata != nil && len(*p.Metadata) > s.config().MaxMetadata {
				rp.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			} else {
				tp := topicPartition{Topic: t.Topic, Partition: p.Partition}
				c := newCommit(rq, t.TopicID, &p, now)
				res.Records = append(res.Records, offsetRecord(g.id, tp, c))
				undo = append(undo, g.set(tp, c))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	res.Undo = backwards(undo)
	res.Done = func(_ time.Time, err error) []runtime.Result {
		if err != nil {
			resp = failedCommit(rq, runtime.ClientError(err).Code)
		}
		answer(resp)
		return nil
	}
	return []runtime.Result{res}
}

func newCommit(rq *kmsg.OffsetCommitRequest, id [16]byte, p *kmsg.OffsetCommitRequestTopicPartition, now time.Time) *committed {
	c := &committed{offset: p.Offset, leaderEpoch: p.LeaderEpoch, timestamp: record.Millis(now), expire: -1, topicID: id, recordAt: math.MaxInt64}
	if p.Metadata != nil {
		c.metadata = *p.Metadata
	}
	if rq.Version < 6 {
		c.leaderEpoch = -1
	}
	if rq.Version >= 2 && rq.Version <= 4 && rq.RetentionTimeMillis >= 0 {
		c.expire = c.timestamp + rq.RetentionTimeMillis
	}
	return c
}

// set stores an offset and gives the way back.
func (g *group) set(tp topicPartition, c *committed) (undo func()) {
	old := g.offsets[tp]
	if c == nil {
		delete(g.offsets, tp)
	} else {
		g.offsets[tp] = c
	}
	return func() {
		if old == nil {
			delete(g.offsets, tp)
		} else {
			g.offsets[tp] = old
		}
	}
}

func backwards(undo []func()) func() {
	return func() {
		for _, u := range slices.Backward(undo) {
			u()
		}
	}
}

func failedCommit(rq *kmsg.OffsetCommitRequest, code int16) *kmsg.OffsetCommitResponse {
	resp := rq.ResponseKind().(*kmsg.OffsetCommitResponse)
	for _, t := range rq.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// FetchOffsets answers one group of an OffsetFetch. Nil topics ask for all. A member id or
// epoch is checked against a group that exists.
func (s *Shard) FetchOffsets(rq *kmsg.OffsetFetchRequestGroup, stable bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = rq.Group
	g := s.groups[rq.Group]
	if g != nil && rq.MemberID != nil {
		if e := g.checkFetch(*rq.MemberID, rq.MemberEpoch); e != nil {
			out.ErrorCode = e.Code
			return out
		}
	}
	if rq.Topics == nil {
		if g != nil {
			out.Topics = s.allOffsets(g, stable)
		}
		return out
	}
	for _, t := range rq.Topics {
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, s.fetchOffset(g, rq.Group, topicPartition{Topic: t.Topic, Partition: p}, t.TopicID, stable))
		}
		out.Topics = append(out.Topics, rt)
	}
	return out
}

func (g *group) checkFetch(memberID string, epoch int32) *kerr.Error {
	if memberID == "" && epoch < 0 || g.kind == Classic {
		return nil
	}
	return kerr.UnknownMemberID
}

func (s *Shard) allOffsets(g *group, stable bool) (out []kmsg.OffsetFetchResponseGroupTopic) {
	tps := make([]topicPartition, 0, len(g.offsets))
	for tp := range g.offsets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, func(a, b topicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for _, tp := range tps {
		if len(out) == 0 || out[len(out)-1].Topic != tp.Topic {
			t := kmsg.NewOffsetFetchResponseGroupTopic()
			t.Topic, t.TopicID = tp.Topic, g.offsets[tp].topicID
			out = append(out, t)
		}
		last := &out[len(out)-1]
		last.Partitions = append(last.Partitions, s.fetchOffset(g, g.id, tp, [16]byte{}, stable))
	}
	return out
}

func (s *Shard) fetchOffset(g *group, id string, tp topicPartition, topicID [16]byte, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, -1, -1, strp("")
	if stable && s.unstable(id, tp) {
		p.ErrorCode = kerr.UnstableOffsetCommit.Code
		return p
	}
	if g == nil {
		return p
	}
	c := g.offsets[tp]
	if c == nil || topicID != ([16]byte{}) && !c.topicID.IsZero() && c.topicID != topicID {
		return p // of a topic that had the name before
	}
	p.Offset, p.LeaderEpoch, p.Metadata = c.offset, c.leaderEpoch, strp(c.metadata)
	return p
}

// DeleteOffsets decides an OffsetDelete request.
func (s *Shard) DeleteOffsets(rq *kmsg.OffsetDeleteRequest, answer func(*kmsg.OffsetDeleteResponse), now time.Time) []runtime.Result {
	resp := rq.ResponseKind().(*kmsg.OffsetDeleteResponse)
	g := s.groups[rq.Group]
	if e := s.mayDeleteOffsets(g, now); e != nil {
		resp.ErrorCode = e.Code
		answer(resp)
		return nil
	}
	res := runtime.Result{}
	var undo []func()
	for _, t := range rq.Topics {
		rt := kmsg.NewOffsetDeleteResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetDeleteResponseTopicPartition()
			rp.Partition = p.Partition
			tp := topicPartition{Topic: t.Topic, Partition: p.Partition}
			if len(g.order) > 0 && g.subscribed(t.Topic) {
				rp.ErrorCode = kerr.GroupSubscribedToTopic.Code
			} else if g.offsets[tp] != nil || s.unstable(g.id, tp) {
				res.Records = append(res.Records, runtime.Record{Key: offsetKey(g.id, tp)})
				undo = append(undo, s.forget(g, tp))
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	res.Undo = backwards(undo)
	res.Done = func(_ time.Time, err error) []runtime.Result {
		if err != nil {
			resp.ErrorCode, resp.Topics = runtime.ClientError(err).Code, nil
		}
		answer(resp)
		return nil
	}
	return []runtime.Result{res}
}

// forget drops an offset, and what open transactions wrote for it.
func (s *Shard) forget(g *group, tp topicPartition) (undo func()) {
	undo = g.set(tp, nil)
	type was struct {
		pid int64
		c   *committed
	}
	var open []was
	k := openKey{g.id, tp}
	for pid, txn := range s.open {
		if c := txn[k]; c != nil {
			open = append(open, was{pid, c})
			delete(txn, k)
			if len(txn) == 0 {
				delete(s.open, pid)
			}
		}
	}
	back := undo
	return func() {
		back()
		for _, w := range open {
			if s.open[w.pid] == nil {
				s.open[w.pid] = map[openKey]*committed{}
			}
			s.open[w.pid][k] = w.c
		}
	}
}

func (s *Shard) mayDeleteOffsets(g *group, now time.Time) *kerr.Error {
	switch {
	case g == nil || g.kind == Share:
		return kerr.GroupIDNotFound
	case g.kind != Classic && s.inUse(g, now):
		return kerr.NonEmptyGroup
	case g.kind == Classic && g.state != Empty && g.protocolType != consumerProtocol:
		return kerr.NonEmptyGroup
	}
	return nil
}

// expire drops offsets that nobody used for offsets.retention.minutes, and groups that
// have nothing left.
func (s *Shard) expire(now time.Time) (out []runtime.Result) {
	ids := make([]string, 0, len(s.groups))
	for id := range s.groups {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		out = append(out, s.expireGroup(s.groups[id], now)...)
	}
	s.armExpiry(now)
	return out
}

func (s *Shard) expireGroup(g *group, now time.Time) []runtime.Result {
	res := runtime.Result{}
	var undo []func()
	for tp, c := range g.offsets {
		if !s.expired(g, tp, c, now) || s.unstable(g.id, tp) {
			continue
		}
		res.Records = append(res.Records, runtime.Record{Key: offsetKey(g.id, tp)})
		undo = append(undo, g.set(tp, nil))
	}
	if len(g.offsets) == 0 && g.kind == Classic && g.state == Empty && len(g.pending) == 0 && len(g.keys) == 0 && !s.openFor(g.id) {
		res.Records = append(res.Records, runtime.Record{Key: groupKey(g.id)})
		undo = append(undo, s.bury(g))
	}
	if len(res.Records) == 0 {
		return nil
	}
	res.Undo = backwards(undo)
	return []runtime.Result{res}
}

// bury forgets a group and gives the way back.
func (s *Shard) bury(g *group) (undo func()) {
	delete(s.groups, g.id)
	g.joinTimer.off()
	g.syncTimer.off()
	return func() { s.groups[g.id] = g }
}

func (s *Shard) expired(g *group, tp topicPartition, c *committed, now time.Time) bool {
	ms := record.Millis(now)
	since := c.timestamp
	switch {
	case g.kind == Share:
		return false
	case g.kind != Classic:
		// What its members subscribe to is not read here; the offsets of a group that may
		// still be in use stay.
		if g.memberKeys > 0 || g.groupKeys > 0 {
			return false
		}
	case g.protocolType == "":
	case g.state == Empty:
		if g.since >= 0 {
			since = max(since, g.since)
		}
	case g.protocolType == consumerProtocol && g.state == Stable && g.topics != nil:
		if g.topics[tp.Topic] {
			return false
		}
	default:
		return false
	}
	if c.expire >= 0 {
		return ms >= c.expire
	}
	return ms-since >= s.config().Retention.Milliseconds()
}
