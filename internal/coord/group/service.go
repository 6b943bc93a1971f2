package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/ids"
)

// Lookup is what the coordinator needs to know of the cluster.
type Lookup interface {
	// OffsetsPartitions is the partition count of __consumer_offsets, 0 while it does
	// not exist.
	OffsetsPartitions() int32
}

// Options configures a Service.
type Options struct {
	Runtime runtime.Options // Topic and New are filled in
	Lookup  Lookup
	Config  func() *Config // nil gives DefaultConfig
	// Random fills its argument; member ids are made of it. Nil gives the system's.
	Random func([]byte)
}

// Service routes group requests to the shards that this node leads.
type Service struct {
	opt Options
	rt  *runtime.Runtime
}

// NewService makes a coordinator that leads nothing.
func NewService(opt Options) *Service {
	if opt.Config == nil {
		def := DefaultConfig()
		opt.Config = func() *Config { return def }
	}
	if opt.Random == nil {
		opt.Random = func(b []byte) { _, _ = rand.Read(b) }
	}
	opt.Runtime.Topic = ids.ConsumerOffsetsTopic
	opt.Runtime.New = func(int32) runtime.Shard { return NewShard(opt.Config) }
	return &Service{opt: opt, rt: runtime.New(opt.Runtime)}
}

// Lead and Resign follow the leadership of the partitions of __consumer_offsets.
func (s *Service) Lead(partition, epoch int32, log runtime.Log) { s.rt.Lead(partition, epoch, log) }
func (s *Service) Resign(partition int32)                       { s.rt.Resign(partition) }

// Led lists the partitions of __consumer_offsets that are led here.
func (s *Service) Led() []int32 { return s.rt.Led() }

// Close ends all shards; who waits is answered NOT_COORDINATOR.
func (s *Service) Close() { s.rt.Close() }

// TopicsDeleted drops the offsets of topics that are gone.
func (s *Service) TopicsDeleted(names []string) {
	topics := map[string]bool{}
	for _, n := range names {
		topics[n] = true
	}
	for _, p := range s.rt.Led() {
		// A shard that loads or leaves now need not hear: offsets of a topic that does not
		// exist are not answered to anyone and expire.
		_ = s.rt.Do(p, func(sh runtime.Shard, now time.Time) []runtime.Result {
			return sh.(*Shard).TopicsDeleted(topics, now)
		}, func(error) {})
	}
}

// on runs op in the shard of a group.
func (s *Service) on(groupID string, op func(sh *Shard, now time.Time) []runtime.Result, lost func(error)) error {
	n := s.opt.Lookup.OffsetsPartitions()
	if n <= 0 {
		return fmt.Errorf("%s does not exist yet: %w", ids.ConsumerOffsetsTopic, kerr.CoordinatorNotAvailable)
	}
	return s.rt.Do(PartitionFor(groupID, n), func(sh runtime.Shard, now time.Time) []runtime.Result { return op(sh.(*Shard), now) }, lost)
}

// ask runs op in the shard of a group and waits for the answer; fail makes one of an error.
func ask[R any](ctx context.Context, s *Service, groupID string, fail func(code int16) R, op func(sh *Shard, answer func(R), now time.Time) []runtime.Result) R {
	answers := make(chan R, 1)
	failed := func(err error) { answers <- fail(runtime.ClientError(err).Code) }
	var once sync.Once
	answer := func(r R) { once.Do(func() { answers <- r }) }
	err := s.on(groupID, func(sh *Shard, now time.Time) []runtime.Result { return op(sh, answer, now) }, failed)
	if err != nil {
		return fail(runtime.ClientError(err).Code)
	}
	select {
	case r := <-answers:
		return r
	case <-ctx.Done():
		return fail(kerr.CoordinatorNotAvailable.Code)
	}
}

// atOnce answers without waiting for a commit.
func atOnce(f func()) []runtime.Result {
	return []runtime.Result{{Now: true, Done: func(time.Time, error) []runtime.Result { f(); return nil }}}
}

// whenCommitted answers once everything the answer rests on is committed.
func whenCommitted(f func(error)) []runtime.Result {
	return []runtime.Result{{Done: func(_ time.Time, err error) []runtime.Result { f(err); return nil }}}
}

// newMemberID is what a member without an id is called: its instance or client id, and a
// random UUID.
func (s *Service) newMemberID(clientID string, instance *string) string {
	var u [16]byte
	s.opt.Random(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	h := hex.EncodeToString(u[:])
	prefix := clientID
	if instance != nil {
		prefix = *instance
	}
	return fmt.Sprintf("%s-%s-%s-%s-%s-%s", prefix, h[:8], h[8:12], h[12:16], h[16:20], h[20:])
}

// JoinGroup waits until the generation begins, or until the request is refused.
func (s *Service) JoinGroup(ctx context.Context, from Caller, rq *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	newID := s.newMemberID(from.ClientID, rq.InstanceID)
	r := ask(ctx, s, rq.Group, func(code int16) *kmsg.JoinGroupResponse { return failedJoin(rq.MemberID, code) },
		func(sh *Shard, answer func(*kmsg.JoinGroupResponse), now time.Time) []runtime.Result {
			return sh.Join(&join{JoinGroupRequest: rq, from: from, newID: newID, answer: answer}, now)
		})
	r.Version = rq.Version
	if rq.Version >= 7 && r.ErrorCode != 0 && r.ProtocolType == nil {
		r.Protocol = nil
	}
	return r
}

// SyncGroup waits for the assignment.
func (s *Service) SyncGroup(ctx context.Context, rq *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	r := failedSync(kerr.InconsistentGroupProtocol.Code)
	if rq.Version < 5 || rq.ProtocolType != nil && rq.Protocol != nil {
		r = ask(ctx, s, rq.Group, failedSync, func(sh *Shard, answer func(*kmsg.SyncGroupResponse), now time.Time) []runtime.Result {
			return sh.Sync(rq, answer, now)
		})
	}
	r.Version = rq.Version
	return r
}

// Heartbeat keeps a member in its group.
func (s *Service) Heartbeat(ctx context.Context, rq *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	r := rq.ResponseKind().(*kmsg.HeartbeatResponse)
	r.ErrorCode = ask(ctx, s, rq.Group, func(code int16) int16 {
		if code == kerr.CoordinatorLoadInProgress.Code {
			return 0 // the member is fine for all that is known; Kafka says so too
		}
		return code
	}, func(sh *Shard, answer func(int16), now time.Time) []runtime.Result {
		code := codeOf(sh.Heartbeat(rq, now))
		return atOnce(func() { answer(code) })
	})
	return r
}

// LeaveGroup removes members.
func (s *Service) LeaveGroup(ctx context.Context, rq *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	return ask(ctx, s, rq.Group, func(code int16) *kmsg.LeaveGroupResponse {
		r := rq.ResponseKind().(*kmsg.LeaveGroupResponse)
		r.ErrorCode = code
		return r
	}, func(sh *Shard, answer func(*kmsg.LeaveGroupResponse), now time.Time) []runtime.Result {
		r, results := sh.Leave(rq, now)
		return append(atOnce(func() { answer(r) }), results...)
	})
}

// OffsetCommit stores offsets. Topics must be resolved: names set, ids where known.
func (s *Service) OffsetCommit(ctx context.Context, rq *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	return ask(ctx, s, rq.Group, func(code int16) *kmsg.OffsetCommitResponse { return failedCommit(rq, code) },
		func(sh *Shard, answer func(*kmsg.OffsetCommitResponse), now time.Time) []runtime.Result {
			return sh.Commit(rq, answer, now)
		})
}

// OffsetFetchGroup answers one group; topics must be resolved as for OffsetCommit. Callers
// shape what OffsetFetch of their version wants.
func (s *Service) OffsetFetchGroup(ctx context.Context, rq *kmsg.OffsetFetchRequestGroup, requireStable bool) kmsg.OffsetFetchResponseGroup {
	fail := func(code int16) kmsg.OffsetFetchResponseGroup {
		r := kmsg.NewOffsetFetchResponseGroup()
		r.Group, r.ErrorCode = rq.Group, code
		return r
	}
	return ask(ctx, s, rq.Group, fail, func(sh *Shard, answer func(kmsg.OffsetFetchResponseGroup), now time.Time) []runtime.Result {
		r := sh.FetchOffsets(rq, requireStable)
		return whenCommitted(func(err error) {
			if err != nil {
				r = fail(runtime.ClientError(err).Code)
			}
			answer(r)
		})
	})
}

// OffsetFetch answers a whole request, of one group before v8 and of several since.
func (s *Service) OffsetFetch(ctx context.Context, rq *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	resp := rq.ResponseKind().(*kmsg.OffsetFetchResponse)
	if rq.Version >= 8 {
		resp.Groups = make([]kmsg.OffsetFetchResponseGroup, len(rq.Groups))
		var asked sync.WaitGroup
		for i := range rq.Groups {
			asked.Go(func() { resp.Groups[i] = s.OffsetFetchGroup(ctx, &rq.Groups[i], rq.RequireStable) })
		}
		asked.Wait()
		return resp
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = rq.Group
	if rq.Topics != nil {
		g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range rq.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	one := s.OffsetFetchGroup(ctx, &g, rq.RequireStable)
	resp.ErrorCode = one.ErrorCode
	if one.ErrorCode != 0 && rq.Version < 2 { // no error at the top: on each partition
		for _, t := range rq.Topics {
			rt := kmsg.NewOffsetFetchResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseTopicPartition()
				rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p, -1, -1, strp(""), one.ErrorCode
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
	}
	for _, t := range one.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// OffsetDelete drops offsets that no member uses.
func (s *Service) OffsetDelete(ctx context.Context, rq *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	return ask(ctx, s, rq.Group, func(code int16) *kmsg.OffsetDeleteResponse {
		r := rq.ResponseKind().(*kmsg.OffsetDeleteResponse)
		r.ErrorCode = code
		return r
	}, func(sh *Shard, answer func(*kmsg.OffsetDeleteResponse), now time.Time) []runtime.Result {
		return sh.DeleteOffsets(rq, answer, now)
	})
}

// DescribeGroups describes each group that is asked for, in order.
func (s *Service) DescribeGroups(ctx context.Context, rq *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	resp := rq.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, id := range rq.Groups {
		fail := func(code int16) kmsg.DescribeGroupsResponseGroup {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			return g
		}
		resp.Groups = append(resp.Groups, ask(ctx, s, id, fail, func(sh *Shard, answer func(kmsg.DescribeGroupsResponseGroup), now time.Time) []runtime.Result {
			r := sh.Describe(id, rq.Version)
			return whenCommitted(func(err error) {
				if err != nil {
					r = fail(runtime.ClientError(err).Code)
				}
				answer(r)
			})
		}))
	}
	return resp
}

// ListGroups lists the groups of all partitions that are led here. One that still loads
// fails the whole answer, so that no group is missing from it.
func (s *Service) ListGroups(ctx context.Context, rq *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	resp := rq.ResponseKind().(*kmsg.ListGroupsResponse)
	type part struct {
		groups []kmsg.ListGroupsResponseGroup
		err    error
	}
	for _, p := range s.rt.Led() {
		answers := make(chan part, 1)
		err := s.rt.Do(p, func(sh runtime.Shard, now time.Time) []runtime.Result {
			groups := sh.(*Shard).List(rq.StatesFilter, rq.TypesFilter, now)
			return whenCommitted(func(err error) { answers <- part{groups, err} })
		}, func(err error) { answers <- part{err: err} })
		var got part
		if err != nil {
			got.err = err
		} else {
			select {
			case got = <-answers:
			case <-ctx.Done():
				got.err = kerr.CoordinatorNotAvailable
			}
		}
		if got.err != nil {
			code := runtime.ClientError(got.err).Code
			if code == kerr.NotCoordinator.Code { // it moved away meanwhile
				continue
			}
			resp.ErrorCode, resp.Groups = code, nil
			return resp
		}
		resp.Groups = append(resp.Groups, got.groups...)
	}
	return resp
}

// DeleteGroups removes empty groups with all their offsets.
func (s *Service) DeleteGroups(ctx context.Context, rq *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	resp := rq.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for i, id := range rq.Groups {
		if slices.Contains(rq.Groups[:i], id) {
			continue // named twice, answered once
		}
		one := func(code int16, text string) kmsg.DeleteGroupsResponseGroup {
			g := kmsg.NewDeleteGroupsResponseGroup()
			g.Group, g.ErrorCode = id, code
			if text != "" && rq.Version >= 3 {
				g.ErrorMessage = &text
			}
			return g
		}
		fail := func(code int16) kmsg.DeleteGroupsResponseGroup { return one(code, "") }
		resp.Groups = append(resp.Groups, ask(ctx, s, id, fail, func(sh *Shard, answer func(kmsg.DeleteGroupsResponseGroup), now time.Time) []runtime.Result {
			return sh.Delete(id, func(e *kerr.Error, text string) { answer(one(codeOf(e), text)) }, now)
		}))
	}
	return resp
}
