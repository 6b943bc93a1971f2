package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/record"
)

// partitionLog is one led partition of __consumer_offsets; what is appended is committed.
type partitionLog struct {
	mu    sync.Mutex
	buf   []byte
	end   int64
	watch func(int64)
}

func (l *partitionLog) Append(b record.Batch, epoch int32) (int64, error) {
	l.mu.Lock()
	b.SetBaseOffset(l.end)
	l.end = b.NextOffset()
	l.buf = append(l.buf, b...)
	w, hw := l.watch, l.end
	l.mu.Unlock()
	if w != nil {
		w(hw)
	}
	return hw - 1, nil
}
func (l *partitionLog) HighWatermark() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.end }
func (l *partitionLog) LogStart() int64      { return 0 }
func (l *partitionLog) OnHighWatermark(f func(int64)) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watch = f
	return func() { l.mu.Lock(); defer l.mu.Unlock(); l.watch = nil }
}
func (l *partitionLog) Read(int64, int) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]byte(nil), l.buf...), nil
}

type partitions int32

func (p partitions) OffsetsPartitions() int32 { return int32(p) }

func newService(n int32) (*Service, []*partitionLog) {
	s := NewService(Options{Runtime: runtime.Options{Now: time.Now}, Lookup: partitions(n)})
	var logs []*partitionLog
	for p := range n {
		logs = append(logs, &partitionLog{})
		s.Lead(p, 1, logs[p])
	}
	return s, logs
}

// client is a consumer as clients behave.
type client struct {
	t          *testing.T
	s          *Service
	group      string
	instance   *string
	id         string
	generation int32
	assignment string
}

var from = Caller{"rdkafka", "/127.0.0.1"}

func (c *client) join(ctx context.Context) *kmsg.JoinGroupResponse {
	for {
		rq := kmsg.NewPtrJoinGroupRequest()
		rq.Version, rq.Group, rq.MemberID, rq.InstanceID, rq.ProtocolType = 9, c.group, c.id, c.instance, consumerProtocol
		rq.SessionTimeoutMillis, rq.RebalanceTimeoutMillis = 10000, 60000
		rq.Protocols = []kmsg.JoinGroupRequestProtocol{{Name: "range", Metadata: []byte(subscription("t"))}}
		r := c.s.JoinGroup(ctx, from, rq)
		c.id = r.MemberID
		if r.ErrorCode == kerr.MemberIDRequired.Code {
			continue
		}
		return r
	}
}

// settle joins and syncs until the client is in a stable generation.
func (c *client) settle(ctx context.Context) error {
	for range 20 {
		r := c.join(ctx)
		switch r.ErrorCode {
		case 0:
		case kerr.RebalanceInProgress.Code:
			continue
		case kerr.UnknownMemberID.Code:
			c.id = ""
			continue
		default:
			return kerr.ErrorForCode(r.ErrorCode)
		}
		c.generation = r.Generation
		rq := kmsg.NewPtrSyncGroupRequest()
		rq.Version, rq.Group, rq.MemberID, rq.Generation, rq.InstanceID = 5, c.group, c.id, r.Generation, c.instance
		rq.ProtocolType, rq.Protocol = r.ProtocolType, r.Protocol
		for i, m := range r.Members {
			rq.GroupAssignment = append(rq.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: m.MemberID, MemberAssignment: fmt.Append(nil, "part ", i)})
		}
		s := c.s.SyncGroup(ctx, rq)
		if s.ErrorCode == 0 {
			c.assignment = string(s.MemberAssignment)
			return nil
		}
		if s.ErrorCode != kerr.RebalanceInProgress.Code {
			return kerr.ErrorForCode(s.ErrorCode)
		}
	}
	return fmt.Errorf("no stable generation in 20 rounds")
}

func TestClientsShareAGroupThroughAFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		s, logs := newService(4)
		synctest.Wait()
		var cs []*client
		for i := range 6 {
			c := &client{t: t, s: s, group: "g"}
			if i%2 == 0 {
				c.instance = strp(fmt.Sprint("i", i))
			}
			cs = append(cs, c)
		}
		var all sync.WaitGroup
		for _, c := range cs {
			all.Go(func() {
				time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
				if err := c.settle(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		have := map[string]bool{}
		for _, c := range cs {
			if c.generation != cs[0].generation {
				t.Errorf("generations %d and %d", c.generation, cs[0].generation)
			}
			have[c.assignment] = true
		}
		if len(have) != 6 {
			t.Fatalf("assignments %v", have)
		}
		commit := kmsg.NewPtrOffsetCommitRequest()
		commit.Version, commit.Group, commit.MemberID, commit.Generation = 9, "g", cs[1].id, cs[1].generation
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset = 42
		commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
		if r := s.OffsetCommit(ctx, commit); r.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("commit: %+v", r)
		}
		// The partition moves to another broker, which loads it.
		gp := PartitionFor("g", 4)
		s2 := NewService(Options{Runtime: runtime.Options{Now: time.Now}, Lookup: partitions(4)})
		s.Resign(gp)
		synctest.Wait()
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group, hb.MemberID, hb.Generation = "g", cs[1].id, cs[1].generation
		if r := s.Heartbeat(ctx, hb); r.ErrorCode != kerr.NotCoordinator.Code {
			t.Fatalf("heartbeat at the old coordinator: %d", r.ErrorCode)
		}
		s2.Lead(gp, 2, logs[gp])
		synctest.Wait()
		if r := s2.Heartbeat(ctx, hb); r.ErrorCode != 0 {
			t.Fatalf("heartbeat at the new coordinator: %d", r.ErrorCode)
		}
		fetch := kmsg.NewPtrOffsetFetchRequest()
		fetch.Version, fetch.Groups = 9, []kmsg.OffsetFetchRequestGroup{{Group: "g"}, {Group: "unknown"}}
		r := s2.OffsetFetch(ctx, fetch)
		if r.Groups[0].Topics[0].Partitions[0].Offset != 42 {
			t.Fatalf("fetched %+v", r.Groups)
		}
		for _, g := range r.Groups[1:] { // its partition may not be led there
			if g.ErrorCode != 0 && g.ErrorCode != kerr.NotCoordinator.Code || len(g.Topics) != 0 {
				t.Fatalf("unknown group: %+v", g)
			}
		}
		// B62: each group is listed by its coordinator alone.
		list := kmsg.NewPtrListGroupsRequest()
		list.Version = 5
		if a, b := s.ListGroups(ctx, list), s2.ListGroups(ctx, list); len(a.Groups) != 0 || len(b.Groups) != 1 || b.Groups[0].GroupState != "Stable" {
			t.Fatalf("listed %+v and %+v", a.Groups, b.Groups)
		}
		s.Close()
		s2.Close()
	})
}

func TestVersionsAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		none := NewService(Options{Runtime: runtime.Options{Now: time.Now}, Lookup: partitions(0)})
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group = "g"
		if r := none.Heartbeat(ctx, hb); r.ErrorCode != kerr.CoordinatorNotAvailable.Code {
			t.Fatalf("without the topic: %d", r.ErrorCode)
		}
		none.Close()
		s, _ := newService(2)
		synctest.Wait()
		for v := int16(0); v <= 7; v++ {
			rq := kmsg.NewPtrOffsetFetchRequest()
			rq.Version, rq.Group, rq.Topics = v, "g", []kmsg.OffsetFetchRequestTopic{{Topic: "t", Partitions: []int32{3}}}
			r := s.OffsetFetch(ctx, rq)
			if p := r.Topics[0].Partitions[0]; p.Partition != 3 || p.Offset != -1 || p.ErrorCode != 0 || *p.Metadata != "" {
				t.Fatalf("v%d: %+v", v, p)
			}
		}
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Version, sync.Group, sync.MemberID = 5, "g", "m"
		if r := s.SyncGroup(ctx, sync); r.ErrorCode != kerr.InconsistentGroupProtocol.Code {
			t.Fatalf("v5 without protocol: %d", r.ErrorCode)
		}
		sync.Version = 4
		if r := s.SyncGroup(ctx, sync); r.ErrorCode != kerr.UnknownMemberID.Code {
			t.Fatalf("v4: %d", r.ErrorCode)
		}
		for _, v := range []int16{6, 7} {
			rq := kmsg.NewPtrJoinGroupRequest()
			rq.Version, rq.Group = v, ""
			if r := s.JoinGroup(ctx, from, rq); r.ErrorCode != kerr.InvalidGroupID.Code || (r.Protocol == nil) != (v >= 7) {
				t.Fatalf("v%d: %+v", v, r)
			}
		}
		del := kmsg.NewPtrDeleteGroupsRequest()
		del.Version, del.Groups = 3, []string{"nope"}
		if g := s.DeleteGroups(ctx, del).Groups[0]; g.ErrorCode != kerr.GroupIDNotFound.Code || g.ErrorMessage == nil {
			t.Fatalf("delete: %+v", g)
		}
		// A client that goes away while it waits gets no answer, and the coordinator closes
		// with others waiting.
		left, cancel := context.WithCancel(ctx)
		c := &client{t: t, s: s, group: "g", instance: strp("x")}
		done := make(chan int16, 2)
		go func() { done <- c.join(left).ErrorCode }()
		synctest.Wait()
		cancel()
		if code := <-done; code != kerr.CoordinatorNotAvailable.Code {
			t.Fatalf("cancelled: %d", code)
		}
		d := &client{t: t, s: s, group: "g", instance: strp("y")}
		go func() { done <- d.join(ctx).ErrorCode }()
		synctest.Wait()
		s.Close()
		if code := <-done; code != kerr.NotCoordinator.Code {
			t.Fatalf("closed: %d", code)
		}
	})
}

// Members come, go, crash and come back at random; whenever it is quiet the group is
// stable and everyone has a different part.
func TestRandomMembership(t *testing.T) {
	for seed := range uint64(15) {
		h := newScript(t)
		rnd := rand.New(rand.NewPCG(seed, 3))
		type who struct {
			id, inst string
			join     *joined
			sync     *synced
			gen      int32
			dead     bool
		}
		var all []*who
		sess := func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 10000 }
		drive := func(w *who) {
			var change []joiner
			if w.inst != "" {
				change = append(change, instance(w.inst))
			}
			change = append(change, sess)
			if w.join != nil && w.join.r != nil && w.join.r.ErrorCode == 0 {
				w.id = w.join.r.MemberID
			}
			switch {
			case w.dead:
			case w.join != nil && w.join.r == nil, w.sync != nil && w.sync.r == nil:
			case w.sync != nil && w.sync.r.ErrorCode == 0 && h.beat("g", w.id, w.gen) == 0:
			case w.join != nil && w.join.r.ErrorCode == 0 && w.sync == nil:
				assign := map[string]string{}
				for _, m := range w.join.r.Members {
					assign[m.MemberID] = "for " + m.MemberID
				}
				w.gen = w.join.r.Generation
				w.sync = h.sync("g", w.id, w.gen, assign)
			default:
				if w.join != nil {
					switch w.join.r.ErrorCode {
					case kerr.UnknownMemberID.Code:
						w.id = ""
					default:
						w.id = w.join.r.MemberID
					}
				}
				if w.sync != nil && (w.sync.r.ErrorCode == kerr.UnknownMemberID.Code || h.beat("g", w.id, w.gen) == kerr.UnknownMemberID.Code) {
					w.id = ""
				}
				w.sync = nil
				w.join = h.join("g", w.id, change...)
				if w.join.r != nil {
					w.id = w.join.r.MemberID
				}
			}
		}
		for range 120 {
			switch n := rnd.IntN(10); {
			case n < 2 && len(all) < 6:
				w := &who{}
				if rnd.IntN(2) == 0 {
					w.inst = fmt.Sprint("i", len(all))
				}
				all = append(all, w)
			case n == 2 && len(all) > 0:
				all[rnd.IntN(len(all))].dead = true
			case n == 3 && len(all) > 0: // comes back as a new process
				w := all[rnd.IntN(len(all))]
				*w = who{inst: w.inst}
			case n == 4 && len(all) > 0:
				if w := all[rnd.IntN(len(all))]; w.id != "" {
					h.leave("g", 4, gone(w.id))
				}
			case n == 5:
				h.offset(commit{group: "g", generation: -1, topic: "t", offset: rnd.Int64N(100)})
			}
			for _, w := range all {
				if rnd.IntN(3) > 0 {
					drive(w)
				}
			}
			h.after(time.Duration(rnd.IntN(4000)) * time.Millisecond)
		}
		for range 200 {
			for _, w := range all {
				drive(w)
			}
			h.after(time.Second)
		}
		living := 0
		parts := map[string]bool{} // a static member that came back keeps what its old id got
		for _, w := range all {
			if w.dead {
				continue
			}
			living++
			if w.sync == nil || w.sync.r == nil || w.sync.r.ErrorCode != 0 || len(w.sync.r.MemberAssignment) == 0 || parts[string(w.sync.r.MemberAssignment)] {
				for _, w := range all {
					t.Logf("%+v join %+v sync %+v", w, w.join, w.sync)
				}
				t.Fatalf("seed %d: %+v is not settled; group %+v", seed, w, h.s.groups["g"])
			}
			parts[string(w.sync.r.MemberAssignment)] = true
		}
		if living > 0 && h.state("g") != "Stable" {
			t.Fatalf("seed %d: state %s", seed, h.state("g"))
		}
	}
}
