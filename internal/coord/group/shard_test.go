package group

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/record"
)

// script drives one shard in virtual time and keeps what it writes.
type script struct {
	t    *testing.T
	s    *Shard
	cfg  *Config
	now  time.Time
	log  []runtime.Record
	hold bool             // results wait for commit()
	held []runtime.Result // in order
	ids  int
}

func newScript(t *testing.T) *script {
	h := &script{t: t, cfg: DefaultConfig(), now: time.UnixMilli(1_700_000_000_000)}
	h.s = h.shard()
	h.s.Loaded(h.now)
	return h
}

func (h *script) shard() *Shard { return NewShard(func() *Config { return h.cfg }) }

func (h *script) do(results []runtime.Result) {
	h.t.Helper()
	for _, r := range results {
		if h.hold && !r.Now {
			h.held = append(h.held, r)
			continue
		}
		h.log = append(h.log, r.Records...)
		if r.Done != nil {
			h.do(r.Done(h.now, nil))
		}
	}
	if len(h.held) == 0 {
		h.checkReload()
	}
}

// commit ends the hold; err fails the append instead.
func (h *script) commit(err error) {
	h.t.Helper()
	held := h.held
	h.hold, h.held = false, nil
	if err == nil {
		h.do(held)
		return
	}
	for _, r := range slices.Backward(held) {
		if r.Undo != nil {
			r.Undo()
		}
	}
	for _, r := range held {
		if r.Done != nil {
			h.do(r.Done(h.now, err))
		}
	}
	h.checkReload()
}

// reload gives a shard made of what was written.
func (h *script) reload() *Shard {
	s := h.shard()
	for i, r := range h.log {
		if err := s.Replay(runtime.Source{Offset: int64(i), ProducerID: record.NoProducer}, r); err != nil {
			h.t.Fatal(err)
		}
	}
	return s
}

func (h *script) restart() {
	h.s = h.reload()
	h.do(h.s.Loaded(h.now))
}

// checkReload compares all that is durable with what the log gives.
func (h *script) checkReload() {
	h.t.Helper()
	other := h.reload()
	live, again := durable(h.s), durable(other)
	for _, id := range slices.Sorted(maps.Keys(live)) {
		g := h.s.groups[id]
		if g.kind == Classic && g.state != Stable && g.state != Empty {
			continue // between generations: what is stored is the one before
		}
		if live[id] != again[id] {
			h.t.Fatalf("group %s is\n%s, its records give\n%s", id, live[id], again[id])
		}
	}
	for id := range again {
		if h.s.groups[id] == nil {
			h.t.Fatalf("group %s is gone, its records give %s", id, again[id])
		}
	}
}

func durable(s *Shard) map[string]string {
	out := map[string]string{}
	for id, g := range s.groups {
		var b strings.Builder
		fmt.Fprintf(&b, "%v keys=%d", g.kind, len(g.keys))
		for _, tp := range s.offsetsOf(g) {
			if c := g.offsets[tp]; c != nil {
				x := *c
				x.recordAt = 0
				fmt.Fprintf(&b, " %v=%+v", tp, x)
			}
		}
		if g.stored {
			fmt.Fprintf(&b, " gen=%d type=%s protocol=%s leader=%s state=%v", g.generation, g.protocolType, g.protocol, g.leader, g.state)
			for _, m := range g.order {
				inst := "-"
				if m.instance != nil {
					inst = *m.instance
				}
				fmt.Fprintf(&b, " [%s %s %s %s %v %v %q %q]", m.id, inst, m.clientID, m.host, m.session, m.rebalance, m.metadata(g.protocol), orEmpty(m.assignment))
			}
		} else if len(g.offsets) == 0 && len(g.keys) == 0 {
			continue
		}
		out[id] = b.String()
	}
	return out
}

func (h *script) after(d time.Duration) {
	h.t.Helper()
	until := h.now.Add(d)
	for {
		next := h.s.Next()
		if next.IsZero() || next.After(until) {
			break
		}
		if next.After(h.now) {
			h.now = next
		}
		h.do(h.s.Tick(h.now))
	}
	h.now = until
}

type joined struct{ r *kmsg.JoinGroupResponse }
type synced struct{ r *kmsg.SyncGroupResponse }

type joiner func(*kmsg.JoinGroupRequest)

func instance(id string) joiner    { return func(r *kmsg.JoinGroupRequest) { r.InstanceID = &id } }
func version(v int16) joiner       { return func(r *kmsg.JoinGroupRequest) { r.Version = v } }
func protocolType(p string) joiner { return func(r *kmsg.JoinGroupRequest) { r.ProtocolType = p } }
func protocols(ps ...string) joiner {
	return func(r *kmsg.JoinGroupRequest) {
		r.Protocols = nil
		for _, p := range ps {
			name, meta, _ := strings.Cut(p, "=")
			r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: []byte(meta)})
		}
	}
}

func (h *script) join(group, member string, change ...joiner) *joined {
	h.t.Helper()
	rq := kmsg.NewPtrJoinGroupRequest()
	rq.Version, rq.Group, rq.MemberID, rq.ProtocolType = 9, group, member, consumerProtocol
	rq.SessionTimeoutMillis, rq.RebalanceTimeoutMillis = 10000, 60000
	protocols("range=r")(rq)
	for _, c := range change {
		c(rq)
	}
	h.ids++
	out := &joined{}
	h.do(h.s.Join(&join{JoinGroupRequest: rq, from: Caller{"client", "/10.0.0.1"}, newID: fmt.Sprintf("m%d", h.ids), answer: func(r *kmsg.JoinGroupResponse) {
		if out.r != nil {
			h.t.Error("a JoinGroup was answered twice")
		}
		out.r = r
	}}, h.now))
	return out
}

// member joins a dynamic member in two steps, as clients do.
func (h *script) member(group string, change ...joiner) (string, *joined) {
	h.t.Helper()
	first := h.join(group, "", change...)
	if first.r == nil || first.r.ErrorCode != kerr.MemberIDRequired.Code || first.r.MemberID == "" {
		h.t.Fatalf("first join: %+v", first.r)
	}
	return first.r.MemberID, h.join(group, first.r.MemberID, change...)
}

func (h *script) sync(group, member string, generation int32, assign map[string]string, change ...func(*kmsg.SyncGroupRequest)) *synced {
	h.t.Helper()
	rq := kmsg.NewPtrSyncGroupRequest()
	rq.Version, rq.Group, rq.MemberID, rq.Generation = 5, group, member, generation
	for _, id := range slices.Sorted(maps.Keys(assign)) {
		rq.GroupAssignment = append(rq.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(assign[id])})
	}
	for _, c := range change {
		c(rq)
	}
	out := &synced{}
	h.do(h.s.Sync(rq, func(r *kmsg.SyncGroupResponse) {
		if out.r != nil {
			h.t.Error("a SyncGroup was answered twice")
		}
		out.r = r
	}, h.now))
	return out
}

func (h *script) beat(group, member string, generation int32) int16 {
	rq := kmsg.NewPtrHeartbeatRequest()
	rq.Group, rq.MemberID, rq.Generation = group, member, generation
	return codeOf(h.s.Heartbeat(rq, h.now))
}

func (h *script) leave(group string, v int16, members ...kmsg.LeaveGroupRequestMember) *kmsg.LeaveGroupResponse {
	h.t.Helper()
	rq := kmsg.NewPtrLeaveGroupRequest()
	rq.Version, rq.Group, rq.Members = v, group, members
	if v < 3 {
		rq.MemberID = members[0].MemberID
	}
	r, results := h.s.Leave(rq, h.now)
	h.do(results)
	return r
}

func gone(id string) kmsg.LeaveGroupRequestMember { return kmsg.LeaveGroupRequestMember{MemberID: id} }

type commit struct {
	group, member string
	generation    int32
	instance      *string
	topic         string
	partition     int32
	offset        int64
	metadata      string
	version       int16
	retention     int64
}

func (h *script) offset(c commit) (code int16) {
	h.t.Helper()
	rq := kmsg.NewPtrOffsetCommitRequest()
	rq.Version, rq.Group, rq.MemberID, rq.Generation, rq.InstanceID = c.version, c.group, c.member, c.generation, c.instance
	if c.version == 0 {
		rq.Version = 9
	}
	rq.RetentionTimeMillis = -1
	if c.retention > 0 {
		rq.RetentionTimeMillis = c.retention
	}
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata = c.partition, c.offset, &c.metadata
	rq.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: c.topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
	code = -99
	h.do(h.s.Commit(rq, func(r *kmsg.OffsetCommitResponse) { code = r.Topics[0].Partitions[0].ErrorCode }, h.now))
	return code
}

func (s *Shard) fetch(group, topic string, partition int32, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	rq := kmsg.NewOffsetFetchRequestGroup()
	rq.Group, rq.Topics = group, []kmsg.OffsetFetchRequestGroupTopic{{Topic: topic, Partitions: []int32{partition}}}
	return s.FetchOffsets(&rq, stable).Topics[0].Partitions[0]
}

func (h *script) want(name string, got, want any) {
	h.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		h.t.Fatalf("%s: got %v, want %v", name, got, want)
	}
}

// stable brings n dynamic members into a stable group and gives their ids, leader first.
func (h *script) stable(group string, n int, change ...joiner) (ids []string, generation int32) {
	h.t.Helper()
	var waiting []*joined
	for range n {
		id, j := h.member(group, change...)
		ids, waiting = append(ids, id), append(waiting, j)
	}
	for range 60 {
		if waiting[0].r == nil {
			h.after(time.Second)
		}
	}
	assign := map[string]string{}
	for i, j := range waiting {
		if j.r == nil || j.r.ErrorCode != 0 {
			h.t.Fatalf("member %d did not join: %+v", i, j.r)
		}
		assign[ids[i]] = fmt.Sprint("a", i)
	}
	generation = waiting[0].r.Generation
	var syncs []*synced
	for _, id := range slices.Backward(ids) {
		if id == ids[0] {
			syncs = append(syncs, h.sync(group, id, generation, assign))
		} else {
			syncs = append(syncs, h.sync(group, id, generation, nil))
		}
	}
	for i, s := range syncs {
		if s.r == nil || s.r.ErrorCode != 0 || string(s.r.MemberAssignment) != fmt.Sprint("a", n-1-i) {
			h.t.Fatalf("sync %d: %+v", i, s.r)
		}
	}
	return ids, generation
}

func (h *script) state(group string) string {
	g := h.s.groups[group]
	if g == nil {
		return dead
	}
	return g.state.String()
}

func TestEagerRebalance(t *testing.T) {
	h := newScript(t)
	a, ja := h.member("g", protocols("range=ra", "roundrobin=rra"))
	if ja.r != nil {
		t.Fatal("the first member is answered before the initial delay")
	}
	h.after(2 * time.Second)
	b, jb := h.member("g", protocols("roundrobin=rrb"))
	h.after(time.Second) // the delay, extended because b came
	if ja.r != nil {
		t.Fatal("the delay was not extended for a new member")
	}
	h.after(3 * time.Second)
	if ja.r == nil || jb.r == nil {
		t.Fatal("the initial rebalance does not end")
	}
	h.want("generation", ja.r.Generation, 1)
	h.want("leader", ja.r.LeaderID, a)
	h.want("protocol that both know", *jb.r.Protocol, "roundrobin")
	h.want("members for the leader", len(ja.r.Members), 2)
	h.want("members for others", len(jb.r.Members), 0)
	h.want("metadata", string(ja.r.Members[1].ProtocolMetadata), "rrb")
	sb := h.sync("g", b, 1, nil)
	if sb.r != nil {
		t.Fatal("a follower is answered before the leader")
	}
	h.want("heartbeat while completing", h.beat("g", b, 1), 0)
	sa := h.sync("g", a, 1, map[string]string{a: "x", b: "y"})
	h.want("leader's part", string(sa.r.MemberAssignment), "x")
	h.want("follower's part", string(sb.r.MemberAssignment), "y")
	h.want("state", h.state("g"), "Stable")

	// A third comes: all must come back.
	c, jc := h.member("g", protocols("roundrobin=rrc"))
	h.want("heartbeat tells of it", h.beat("g", a, 1), kerr.RebalanceInProgress.Code)
	h.want("sync tells of it", h.sync("g", a, 1, nil).r.ErrorCode, kerr.RebalanceInProgress.Code)
	ja = h.join("g", a, protocols("range=ra", "roundrobin=rra"))
	jb = h.join("g", b, protocols("roundrobin=rrb"))
	if ja.r == nil || jb.r == nil || jc.r == nil {
		t.Fatal("all are there and the rebalance does not end")
	}
	h.want("generation", jc.r.Generation, 2)
	h.want("leader stays", jc.r.LeaderID, a)
	h.want("old generation", h.beat("g", b, 1), kerr.IllegalGeneration.Code)
	h.sync("g", a, 2, map[string]string{c: "z"})
	h.want("who is not assigned", string(h.sync("g", b, 2, nil).r.MemberAssignment), "")
	h.want("c", string(h.sync("g", c, 2, nil).r.MemberAssignment), "z")

	// A follower that comes again unchanged just hears where it is; the leader rebalances.
	h.want("same again", h.join("g", b, protocols("roundrobin=rrb")).r.Generation, 2)
	h.join("g", a, protocols("range=ra", "roundrobin=rra"))
	h.want("leader again", h.state("g"), "PreparingRebalance")
}

func TestRebalanceTimeoutRemovesWhoDoesNotComeBack(t *testing.T) {
	h := newScript(t)
	ids, _ := h.stable("g", 3)
	h.join("g", ids[0], protocols("range=new"))
	jb := h.join("g", ids[1])
	h.after(9 * time.Second)
	h.beat("g", ids[2], 1)
	if jb.r != nil {
		t.Fatal("did not wait for the third")
	}
	for range 6 {
		h.after(9 * time.Second)
		h.beat("g", ids[2], 1)
	}
	if jb.r == nil {
		t.Fatal("waits for ever for the third")
	}
	h.want("the third is out", h.beat("g", ids[2], 2), kerr.UnknownMemberID.Code)
	h.want("members left", len(h.s.groups["g"].order), 2)
}

func TestLeaderGoneAnotherLeads(t *testing.T) {
	h := newScript(t)
	ids, _ := h.stable("g", 2)
	h.leave("g", 3, gone(ids[0]))
	j := h.join("g", ids[1])
	h.want("new leader", j.r.LeaderID, ids[1])
	h.want("members", len(j.r.Members), 1)
}

func TestSessions(t *testing.T) {
	h := newScript(t)
	ids, gen := h.stable("g", 2)
	h.after(9 * time.Second)
	h.want("alive", h.beat("g", ids[0], gen), 0)
	h.after(9 * time.Second)
	h.want("alive, the other not", h.beat("g", ids[0], gen), kerr.RebalanceInProgress.Code)
	h.want("the silent one is gone", h.beat("g", ids[1], gen), kerr.UnknownMemberID.Code)
}

func TestSessionEndsSilentMember(t *testing.T) {
	h := newScript(t)
	ids, gen := h.stable("g", 1)
	h.after(9999 * time.Millisecond)
	h.want("just in time", h.beat("g", ids[0], gen), 0)
	h.after(10 * time.Second)
	h.want("too late", h.beat("g", ids[0], gen), kerr.UnknownMemberID.Code)
	h.want("state", h.state("g"), "Empty")
	h.want("generation moved on", h.s.groups["g"].generation, gen+1)
}

func TestMemberThatNeverSyncsIsRemoved(t *testing.T) {
	h := newScript(t)
	a, _ := h.member("g")
	h.member("g")
	h.after(6 * time.Second)
	h.want("state", h.state("g"), "CompletingRebalance")
	h.sync("g", a, 1, map[string]string{a: "x"})
	for range 10 {
		h.after(6 * time.Second)
		h.beat("g", a, 1)
		for _, m := range h.s.groups["g"].order {
			h.beat("g", m.id, 1)
		}
	}
	h.want("rebalancing without it", h.state("g"), "PreparingRebalance")
	h.want("members", len(h.s.groups["g"].order), 1)
}

func TestPendingMemberIsWaitedForAndForgotten(t *testing.T) {
	h := newScript(t)
	ids, _ := h.stable("g", 1)
	h.join("g", "") // MEMBER_ID_REQUIRED, and never comes back
	j := h.join("g", ids[0], protocols("range=changed"))
	if j.r != nil {
		t.Fatal("did not wait for the pending member")
	}
	h.after(10 * time.Second)
	if j.r == nil || j.r.ErrorCode != 0 {
		t.Fatalf("after the pending member's session: %+v", j.r)
	}
}

func TestOldClientsJoinAtOnce(t *testing.T) {
	h := newScript(t)
	j := h.join("g", "", version(3))
	h.after(3 * time.Second)
	h.want("joined", j.r.ErrorCode, 0)
	// One that never heard its answer is a ghost until the long timeout of new members.
	k := h.join("g", "", version(3))
	h.after(5 * time.Minute)
	if k.r == nil {
		t.Fatal("never answered")
	}
}

func TestRefusals(t *testing.T) {
	h := newScript(t)
	code := func(j *joined) any {
		if j.r == nil {
			return "waits"
		}
		return j.r.ErrorCode
	}
	h.want("empty group id", code(h.join("", "")), kerr.InvalidGroupID.Code)
	h.want("session too short", code(h.join("g", "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 5999 })), kerr.InvalidSessionTimeout.Code)
	h.want("session too long", code(h.join("g", "", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1800001 })), kerr.InvalidSessionTimeout.Code)
	h.want("unknown group with member id", code(h.join("g", "who")), kerr.UnknownMemberID.Code)
	h.want("no protocols", code(h.join("g", "", protocols())), kerr.InconsistentGroupProtocol.Code)
	h.want("it leaves an Empty group", h.state("g"), "Empty")
	ids, gen := h.stable("g", 2)
	h.want("other type", code(h.join("g", ids[1], protocolType("connect"))), kerr.InconsistentGroupProtocol.Code)
	h.want("unknown member", code(h.join("g", "who")), kerr.UnknownMemberID.Code)
	h.cfg.MaxSize = 2
	full := h.join("g", "")
	h.want("full", code(full), kerr.GroupMaxSizeReached.Code)
	h.want("full, member id", full.r.MemberID, "")
	h.want("other protocol", code(h.join("g", ids[1], protocols("other=x"))), kerr.InconsistentGroupProtocol.Code)
	h.want("sync unknown group", h.sync("nope", "x", 1, nil).r.ErrorCode, kerr.UnknownMemberID.Code)
	h.want("sync unknown member", h.sync("g", "x", 1, nil).r.ErrorCode, kerr.UnknownMemberID.Code)
	h.want("sync generation", h.sync("g", ids[0], gen+1, nil).r.ErrorCode, kerr.IllegalGeneration.Code)
	h.want("sync protocol", h.sync("g", ids[0], gen, nil, func(r *kmsg.SyncGroupRequest) { r.Protocol = strp("other") }).r.ErrorCode, kerr.InconsistentGroupProtocol.Code)
	h.want("sync protocol type", h.sync("g", ids[0], gen, nil, func(r *kmsg.SyncGroupRequest) { r.ProtocolType = strp("other") }).r.ErrorCode, kerr.InconsistentGroupProtocol.Code)
	h.want("sync in Stable", string(h.sync("g", ids[0], gen, nil).r.MemberAssignment), "a0")
	h.want("heartbeat unknown group", h.beat("nope", "x", 1), kerr.UnknownMemberID.Code)
	h.want("leave unknown, v2", h.leave("g", 2, gone("x")).ErrorCode, kerr.UnknownMemberID.Code)
	r := h.leave("nope", 3, gone("x"))
	h.want("leave unknown group, v3 top", r.ErrorCode, 0)
	h.want("leave unknown group, v3 member", r.Members[0].ErrorCode, kerr.UnknownMemberID.Code)
	h.leave("g", 3, gone(ids[0]), gone(ids[1]))
	h.want("all left", h.state("g"), "Empty")
	h.want("heartbeat after", h.beat("g", ids[0], gen+1), kerr.UnknownMemberID.Code)
}

// B54: whoever still uses the old id of a static member is fenced, in every request.
func TestStaticMemberComesBackWithoutRebalance(t *testing.T) {
	for _, v := range []int16{5, 9} {
		h := newScript(t)
		j1 := h.join("g", "", instance("one"))
		j2 := h.join("g", "", instance("two"))
		h.after(6 * time.Second)
		one, two := j1.r.MemberID, j2.r.MemberID
		h.want("leader", j1.r.LeaderID, one)
		s2 := h.sync("g", two, 1, nil, func(r *kmsg.SyncGroupRequest) { r.InstanceID = strp("two") })
		h.sync("g", one, 1, map[string]string{one: "x", two: "y"}, func(r *kmsg.SyncGroupRequest) { r.InstanceID = strp("one") })
		h.want("second's part", string(s2.r.MemberAssignment), "y")

		back := h.join("g", "", instance("two"), version(v))
		h.want("no rebalance", h.state("g"), "Stable")
		h.want("generation", back.r.Generation, 1)
		two2 := back.r.MemberID
		if two2 == two || back.r.SkipAssignment {
			t.Fatalf("follower came back as %+v", back.r)
		}
		h.want("keeps its part", string(h.sync("g", two2, 1, nil, func(r *kmsg.SyncGroupRequest) { r.InstanceID = strp("two") }).r.MemberAssignment), "y")

		lead := h.join("g", "", instance("one"), version(v))
		if v >= 9 {
			h.want("leader skips the assignment", lead.r.SkipAssignment, true)
			h.want("leader", lead.r.LeaderID, lead.r.MemberID)
			h.want("members", len(lead.r.Members), 2)
		} else {
			h.want("old client does not hear that it leads", lead.r.LeaderID, one)
			h.want("members", len(lead.r.Members), 0)
		}
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group, hb.MemberID, hb.Generation, hb.InstanceID = "g", one, 1, strp("one")
		h.want("fenced heartbeat", codeOf(h.s.Heartbeat(hb, h.now)), kerr.FencedInstanceID.Code)
		h.want("fenced sync", h.sync("g", one, 1, nil, func(r *kmsg.SyncGroupRequest) { r.InstanceID = strp("one") }).r.ErrorCode, kerr.FencedInstanceID.Code)
		h.want("fenced join", h.join("g", one, instance("one")).r.ErrorCode, kerr.FencedInstanceID.Code)
		h.want("fenced commit", h.offset(commit{group: "g", member: one, generation: 1, instance: strp("one"), topic: "t"}), kerr.FencedInstanceID.Code)
		r := h.leave("g", 4, kmsg.LeaveGroupRequestMember{MemberID: one, InstanceID: strp("one")})
		h.want("fenced leave", r.Members[0].ErrorCode, kerr.FencedInstanceID.Code)
		h.want("commit of the new one", h.offset(commit{group: "g", member: lead.r.MemberID, generation: 1, instance: strp("one"), topic: "t"}), 0)
		// The administrator removes it by its instance alone.
		r = h.leave("g", 4, kmsg.LeaveGroupRequestMember{InstanceID: strp("two")}, kmsg.LeaveGroupRequestMember{InstanceID: strp("nobody")})
		h.want("removed by instance", r.Members[0].ErrorCode, 0)
		h.want("unknown instance", r.Members[1].ErrorCode, kerr.UnknownMemberID.Code)
		h.want("rebalance", h.state("g"), "PreparingRebalance")
	}
}

func TestStaticMembersSurviveARebalanceTheyMiss(t *testing.T) {
	h := newScript(t)
	j1 := h.join("g", "", instance("one"), func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1800000 })
	j2 := h.join("g", "", instance("two"), func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1800000 })
	h.after(6 * time.Second)
	one, two := j1.r.MemberID, j2.r.MemberID
	h.sync("g", one, 1, map[string]string{one: "x", two: "y"})
	h.sync("g", two, 1, nil)
	j := h.join("g", two, instance("two"), protocols("range=changed"), func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1800000 })
	h.after(time.Minute)
	h.want("generation", j.r.Generation, 2)
	h.want("who came leads", j.r.LeaderID, two)
	h.want("the other is still a member", len(j.r.Members), 2)
}

// B59: three members within milliseconds, dynamic and static.
func TestConcurrentJoinsForgetNobody(t *testing.T) {
	h := newScript(t)
	var js []*joined
	for i := range 3 {
		_, j := h.member("g")
		js = append(js, j, h.join("g", "", instance(fmt.Sprint("i", i))))
		h.after(2 * time.Millisecond)
	}
	h.after(10 * time.Second)
	for i, j := range js {
		if j.r == nil || j.r.ErrorCode != 0 || j.r.Generation != 1 {
			t.Fatalf("member %d: %+v", i, j.r)
		}
		s := h.sync("g", j.r.MemberID, 1, map[string]string{j.r.MemberID: "x"})
		if s.r != nil && s.r.ErrorCode != 0 {
			t.Fatalf("sync %d: %+v", i, s.r)
		}
	}
	h.want("state", h.state("g"), "Stable")
	h.want("members", len(h.s.groups["g"].order), 6)
}

// B57: an assignment is bytes.
func TestAssignmentBytesPassThrough(t *testing.T) {
	h := newScript(t)
	a, _ := h.member("g")
	b, _ := h.member("g")
	h.after(10 * time.Second)
	sb := h.sync("g", b, 1, nil)
	sa := h.sync("g", a, 1, map[string]string{a: "\xff\x00garbage"})
	h.want("garbage", string(sa.r.MemberAssignment), "\xff\x00garbage")
	if sb.r.MemberAssignment == nil || len(sb.r.MemberAssignment) != 0 {
		t.Fatalf("nothing assigned gives %v", sb.r.MemberAssignment)
	}
	h.restart()
	d := h.s.Describe("g", 5)
	h.want("described", d.State, "Stable")
	h.want("described assignment", string(d.Members[0].MemberAssignment), "\xff\x00garbage")
	h.want("topics unknown: everything counts as subscribed", h.s.groups["g"].subscribed("any"), true)
}

func TestFailedAppends(t *testing.T) {
	h := newScript(t)
	a, _ := h.member("g")
	b, _ := h.member("g")
	h.after(10 * time.Second)
	h.hold = true
	sb, sa := h.sync("g", b, 1, nil), h.sync("g", a, 1, map[string]string{a: "x"})
	if sa.r != nil {
		t.Fatal("answered before the commit")
	}
	h.commit(kerr.NotEnoughReplicas)
	h.want("leader hears", sa.r.ErrorCode, kerr.CoordinatorNotAvailable.Code)
	h.want("followers hear", sb.r.ErrorCode, kerr.CoordinatorNotAvailable.Code)
	h.want("and join again", h.state("g"), "PreparingRebalance")

	h.offset(commit{group: "s", generation: -1, topic: "t", offset: 5})
	h.hold = true
	h.offset(commit{group: "s", generation: -1, topic: "t", offset: 6})
	h.offset(commit{group: "s", generation: -1, topic: "t", offset: 7})
	h.want("decided ahead", h.s.fetch("s", "t", 0, false).Offset, 7)
	h.commit(errors.New("disk"))
	h.want("taken back", h.s.fetch("s", "t", 0, false).Offset, 5)

	h = newScript(t)
	j := h.join("g", "", instance("one"))
	h.after(10 * time.Second)
	h.sync("g", j.r.MemberID, 1, map[string]string{j.r.MemberID: "x"})
	h.hold = true
	again := h.join("g", "", instance("one"))
	h.commit(kerr.NotLeaderForPartition)
	h.want("static rejoin fails", again.r.ErrorCode, kerr.NotCoordinator.Code)
	h.want("the old id still counts", h.beat("g", j.r.MemberID, 1), 0)
}

func TestOffsets(t *testing.T) {
	h := newScript(t)
	h.want("simple group", h.offset(commit{group: "", generation: -1, topic: "t", offset: 3, metadata: "abc"}), 0) // B60
	p := h.s.fetch("", "t", 0, false)
	h.want("metadata", *p.Metadata, "abc")
	h.want("offset", p.Offset, 3)
	h.want("leader epoch", p.LeaderEpoch, -1)
	h.want("metadata too long", h.offset(commit{group: "s", generation: -1, topic: "t", metadata: strings.Repeat("x", 4097)}), kerr.OffsetMetadataTooLarge.Code)
	h.want("metadata just fits", h.offset(commit{group: "s", generation: -1, topic: "t", metadata: strings.Repeat("x", 4096)}), 0)
	h.want("unknown group v9", h.offset(commit{group: "x", generation: 1, topic: "t"}), kerr.GroupIDNotFound.Code)
	h.want("unknown group v8", h.offset(commit{group: "x", generation: 1, topic: "t", version: 8}), kerr.IllegalGeneration.Code)
	h.want("nothing there", h.s.fetch("x", "t", 0, false).Offset, -1)
	ids, gen := h.stable("g", 1)
	h.want("member", h.offset(commit{group: "g", member: ids[0], generation: gen, topic: "t", offset: 9}), 0)
	h.want("stale generation", h.offset(commit{group: "g", member: ids[0], generation: gen - 1, topic: "t"}), kerr.IllegalGeneration.Code)
	h.want("unknown member", h.offset(commit{group: "g", member: "x", generation: gen, topic: "t"}), kerr.UnknownMemberID.Code)
	h.want("administrator on a live group", h.offset(commit{group: "g", generation: -1, topic: "t"}), kerr.UnknownMemberID.Code)
	for range 3 {
		h.after(9 * time.Second)
		h.want("a commit keeps the session", h.offset(commit{group: "g", member: ids[0], generation: gen, topic: "t", offset: 10}), 0)
	}
	h.join("g", ids[0], protocols("range=changed"))
	h.want("while completing", h.offset(commit{group: "g", member: ids[0], generation: gen + 1, topic: "t"}), kerr.RebalanceInProgress.Code)
	h.restart()
	h.want("after restart", h.s.fetch("g", "t", 0, false).Offset, 10)
	all := kmsg.NewOffsetFetchRequestGroup()
	all.Group = "g"
	r := h.s.FetchOffsets(&all, false)
	h.want("all topics", len(r.Topics), 1)
}

func subscription(topics ...string) string {
	m := kmsg.NewConsumerMemberMetadata()
	m.Topics = topics
	return string(m.AppendTo(nil))
}

// B64: an offset may go unless a living consumer subscribes to its topic.
func TestOffsetDelete(t *testing.T) {
	h := newScript(t)
	del := func(group, topic string) (top, part int16) {
		rq := kmsg.NewPtrOffsetDeleteRequest()
		rq.Group, rq.Topics = group, []kmsg.OffsetDeleteRequestTopic{{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}}}
		part = -99
		h.do(h.s.DeleteOffsets(rq, func(r *kmsg.OffsetDeleteResponse) {
			top = r.ErrorCode
			if len(r.Topics) > 0 {
				part = r.Topics[0].Partitions[0].ErrorCode
			}
		}, h.now))
		return top, part
	}
	both := func(a, b int16) string { return fmt.Sprint(a, b) }
	h.want("unknown group", both(del("x", "t")), both(kerr.GroupIDNotFound.Code, -99))
	h.offset(commit{group: "manual", generation: -1, topic: "t", offset: 1})
	h.want("manual assignment", both(del("manual", "t")), both(0, 0))
	h.want("it is gone", h.s.fetch("manual", "t", 0, false).Offset, -1)
	ids, gen := h.stable("sub", 1, protocols("range="+subscription("t", "u")))
	for _, topic := range []string{"t", "old"} {
		h.want("commit", h.offset(commit{group: "sub", member: ids[0], generation: gen, topic: topic, offset: 1}), 0)
	}
	h.want("subscribed", both(del("sub", "t")), both(0, kerr.GroupSubscribedToTopic.Code))
	h.want("not subscribed", both(del("sub", "old")), both(0, 0))
	h.want("kept", h.s.fetch("sub", "t", 0, false).Offset, 1)
	h.stable("connect", 1, protocolType("connect"))
	h.want("other protocol type, living", both(del("connect", "t")), both(kerr.NonEmptyGroup.Code, -99))
	h.stable("broken", 1)
	h.want("unreadable subscription", both(del("broken", "t")), both(0, kerr.GroupSubscribedToTopic.Code))
}

func (h *script) delete(group string) int16 {
	code := int16(-99)
	h.do(h.s.Delete(group, func(e *kerr.Error, _ string) { code = codeOf(e) }, h.now))
	return code
}

// B63: a deleted group stays away.
func TestDeletedGroupStaysAway(t *testing.T) {
	h := newScript(t)
	ids, gen := h.stable("g", 1)
	h.offset(commit{group: "g", member: ids[0], generation: gen, topic: "t", offset: 1})
	h.want("living", h.delete("g"), kerr.NonEmptyGroup.Code)
	h.leave("g", 3, gone(ids[0]))
	h.want("empty", h.delete("g"), 0)
	for range 2 {
		h.want("listed", len(h.s.List(nil, nil, h.now)), 0)
		h.want("offset", h.s.fetch("g", "t", 0, false).Offset, -1)
		h.want("described v5", h.s.Describe("g", 5).State, "Dead")
		h.want("described v5 error", h.s.Describe("g", 5).ErrorCode, 0)
		h.want("described v6", h.s.Describe("g", 6).ErrorCode, kerr.GroupIDNotFound.Code)
		h.want("again", h.delete("g"), kerr.GroupIDNotFound.Code)
		h.restart()
	}
}

func TestExpiry(t *testing.T) {
	h := newScript(t)
	day := 24 * time.Hour
	h.offset(commit{group: "simple", generation: -1, topic: "t", offset: 1})
	h.offset(commit{group: "explicit", generation: -1, topic: "t", offset: 1, version: 4, retention: 3600_000})
	ids, gen := h.stable("live", 1, protocols("range="+subscription("t")), func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1800000 })
	for _, topic := range []string{"t", "left"} {
		h.offset(commit{group: "live", member: ids[0], generation: gen, topic: topic, offset: 1})
	}
	emptied, egen := h.stable("emptied", 1)
	h.offset(commit{group: "emptied", member: emptied[0], generation: egen, topic: "t", offset: 1})
	run := func(d time.Duration) {
		for range int(d / (20 * time.Minute)) {
			h.after(20 * time.Minute)
			h.beat("live", ids[0], gen)
			h.beat("emptied", emptied[0], egen)
		}
	}
	run(2 * time.Hour)
	h.want("explicit", h.s.fetch("explicit", "t", 0, false).Offset, -1)
	h.want("explicit group", h.state("explicit"), "Dead")
	run(4 * day)
	h.want("not yet", h.s.fetch("simple", "t", 0, false).Offset, 1)
	h.want("group without members, not yet", h.s.fetch("emptied", "t", 0, false).Offset, 1)
	run(3*day + 2*time.Hour)
	h.want("simple", h.s.fetch("simple", "t", 0, false).Offset, -1)
	h.want("subscribed", h.s.fetch("live", "t", 0, false).Offset, 1)
	h.want("left topic", h.s.fetch("live", "left", 0, false).Offset, -1)
	h.want("live group", h.state("live"), "Stable")
	h.want("emptied after its session", h.state("emptied"), "Dead")
	h.restart()
	h.want("nothing comes back", len(h.s.groups), 1)
}

func TestTopicDeletion(t *testing.T) {
	h := newScript(t)
	h.offset(commit{group: "g", generation: -1, topic: "t", offset: 1})
	h.offset(commit{group: "g", generation: -1, topic: "u", offset: 2})
	h.do(h.s.TopicsDeleted(map[string]bool{"t": true}, h.now))
	h.restart()
	h.want("deleted", h.s.fetch("g", "t", 0, false).Offset, -1)
	h.want("kept", h.s.fetch("g", "u", 0, false).Offset, 2)
}

func TestReloadStartsSessionsAgain(t *testing.T) {
	h := newScript(t)
	ids, gen := h.stable("g", 2)
	h.after(5 * time.Second)
	h.restart()
	h.after(9 * time.Second)
	h.want("known after restart", h.beat("g", ids[0], gen), 0)
	h.after(2 * time.Second)
	h.want("the silent one is gone", len(h.s.groups["g"].order), 1)
	h.want("rebalance", h.state("g"), "PreparingRebalance")
}

func TestTransactionalOffsets(t *testing.T) {
	h := newScript(t)
	s := h.shard()
	at := int64(0)
	put := func(pid int64, topic string, offset int64) {
		c := &committed{offset: offset, expire: -1}
		if err := s.Replay(runtime.Source{Offset: at, ProducerID: pid}, offsetRecord("g", topicPartition{Topic: topic}, c)); err != nil {
			t.Fatal(err)
		}
		at++
	}
	put(record.NoProducer, "a", 1)
	put(7, "a", 2)
	put(8, "b", 5)
	h.want("pending does not show", s.fetch("g", "a", 0, false).Offset, 1)
	h.want("unstable", s.fetch("g", "a", 0, true).ErrorCode, kerr.UnstableOffsetCommit.Code)
	s.EndTransaction(7, 0, true)
	s.EndTransaction(8, 0, false)
	h.want("committed", s.fetch("g", "a", 0, true).Offset, 2)
	h.want("aborted", s.fetch("g", "b", 0, true).Offset, -1)
	put(7, "a", 3)
	put(record.NoProducer, "a", 4)
	s.EndTransaction(7, 0, true)
	h.want("the later plain commit wins", s.fetch("g", "a", 0, false).Offset, 4)
	put(7, "a", 9)
	s.Replay(runtime.Source{Offset: at, ProducerID: record.NoProducer}, runtime.Record{Key: offsetKey("g", topicPartition{Topic: "a"})})
	s.EndTransaction(7, 0, true)
	h.want("a tombstone clears pending ones", s.fetch("g", "a", 0, false).Offset, -1)
}

func foreignRecord(typ byte, group, member string) runtime.Record {
	k := append([]byte{0, typ, 0, byte(len(group))}, group...)
	if member != "" {
		k = append(append(k, 0, byte(len(member))), member...)
	}
	return runtime.Record{Key: k, Value: []byte{0, 0, 1, 2, 3}}
}

func TestGroupsOfOtherProtocolsAreLeftAlone(t *testing.T) {
	h := newScript(t)
	h.log = []runtime.Record{foreignRecord(3, "c", ""), foreignRecord(5, "c", "m"), foreignRecord(8, "c", "m"), foreignRecord(11, "sh", ""), foreignRecord(17, "st", ""), foreignRecord(99, "x", ""),
		offsetRecord("c", topicPartition{Topic: "t"}, &committed{offset: 4, expire: -1})}
	s := h.shard()
	for i, r := range h.log {
		if err := s.Replay(runtime.Source{Offset: int64(i), ProducerID: record.NoProducer}, r); (err != nil) != (i == 5) {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	h.log = slices.Delete(h.log, 5, 6)
	h.restart()
	var listed []string
	for _, l := range h.s.List(nil, nil, h.now) {
		listed = append(listed, fmt.Sprintf("%s/%s/%s/%s", l.Group, l.GroupType, l.GroupState, l.ProtocolType))
	}
	h.want("listed", listed, []string{"c/consumer/Stable/consumer", "sh/share/Empty/share", "st/streams/Empty/streams"})
	h.want("filter by type", len(h.s.List(nil, []string{"Share "}, h.now)), 1)
	h.want("filter by state", len(h.s.List([]string{"stable"}, nil, h.now)), 1)
	h.want("unknown filter", len(h.s.List(nil, []string{"nope"}, h.now)), 0)
	h.want("offsets are readable", h.s.fetch("c", "t", 0, false).Offset, 4)
	h.want("join", h.join("c", "").r.ErrorCode, kerr.InconsistentGroupProtocol.Code)
	h.want("join share", h.join("sh", "").r.ErrorCode, kerr.InconsistentGroupProtocol.Code)
	h.want("commit while in use", h.offset(commit{group: "c", generation: -1, topic: "t"}), kerr.UnknownMemberID.Code)
	h.want("delete in use", h.delete("c"), kerr.NonEmptyGroup.Code)
	h.want("described", *h.s.Describe("c", 6).ErrorMessage, "Group c is not a classic group.")
	h.want("share groups are kept", h.delete("sh"), kerr.UnsupportedVersion.Code)
	h.after(46 * time.Second) // their session, as far as this node can know
	h.want("administrator commits", h.offset(commit{group: "c", generation: -1, topic: "t", offset: 6}), 0)
	h.want("still a consumer group", h.s.groups["c"].kind.String(), "consumer")
	_, j := h.member("c") // its applications changed to the classic protocol
	h.after(3 * time.Second)
	h.want("joined", j.r.ErrorCode, 0)
	h.want("offset kept", h.s.fetch("c", "t", 0, false).Offset, 6)
	h.want("streams group deleted", h.delete("st"), 0)
	h.restart()
	h.want("left", len(h.s.groups), 2)
}

// The groups of a directory that Apache Kafka 4.4 wrote (golden groups.txt).
func TestGroupsOfApacheKafka(t *testing.T) {
	h := newScript(t)
	found := map[string]*Shard{}
	for _, name := range []string{"testdata/clean-0.log", "testdata/clean-3.log"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s := h.shard()
		if _, err := runtime.Replay(s, b, 0, func(offset int64, err error) { t.Errorf("%s: offset %d: %v", name, offset, err) }); err != nil {
			t.Fatal(err)
		}
		s.Loaded(h.now)
		for id := range s.groups {
			found[id] = s
		}
	}
	for _, id := range []string{"classic-group", "consumer-group"} {
		s := found[id]
		if s == nil {
			t.Fatalf("group %s is missing: %v", id, slices.Sorted(maps.Keys(found)))
		}
		for _, w := range []struct {
			topic     string
			partition int32
			offset    int64
		}{{"codec-lz4", 1, 100}, {"codec-none", 0, 150}, {"codec-none", 1, 150}} {
			if p := s.fetch(id, w.topic, w.partition, false); p.Offset != w.offset {
				t.Errorf("%s %s-%d: offset %d, want %d", id, w.topic, w.partition, p.Offset, w.offset)
			}
		}
		all := kmsg.NewOffsetFetchRequestGroup()
		all.Group = id
		h.want("all of "+id, len(s.FetchOffsets(&all, false).Topics), 2)
	}
	h.want("kind", found["consumer-group"].groups["consumer-group"].kind.String(), "consumer")
	h.want("kind", found["classic-group"].groups["classic-group"].kind.String(), "classic")
}

// What Kafka wrote is written the same way.
func TestRecordsAreKafkasBytes(t *testing.T) {
	n := 0
	for _, name := range []string{"testdata/clean-0.log", "testdata/clean-3.log"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = runtime.Replay(&rewriter{t, &n}, b, 0, func(offset int64, err error) { t.Errorf("offset %d: %v", offset, err) })
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 6 {
		t.Fatalf("only %d records compared", n)
	}
}

type rewriter struct {
	t *testing.T
	n *int
}

func (w *rewriter) Replay(_ runtime.Source, r runtime.Record) error {
	typ, id, err := keyType(r.Key)
	if err != nil || r.Value == nil {
		return err
	}
	var again runtime.Record
	switch typ {
	case typeOffset:
		group, tp, err := parseOffsetKey(r.Key)
		if err != nil {
			return err
		}
		c, err := parseOffset(r.Value)
		if err != nil {
			return err
		}
		again = offsetRecord(group, tp, c)
	case typeGroup:
		v, err := parseGroup(r.Value)
		if err != nil {
			return err
		}
		g := newGroup(id)
		g.load(v)
		again = g.record(nil)
	default:
		return nil
	}
	*w.n++
	if !bytes.Equal(again.Key, r.Key) || !bytes.Equal(again.Value, r.Value) {
		w.t.Errorf("type %d:\n%x %x\nwritten again as\n%x %x", typ, r.Key, r.Value, again.Key, again.Value)
	}
	return nil
}
func (w *rewriter) EndTransaction(int64, int16, bool) error { return nil }
func (w *rewriter) Loaded(time.Time) []runtime.Result       { return nil }
func (w *rewriter) Next() time.Time                         { return time.Time{} }
func (w *rewriter) Tick(time.Time) []runtime.Result         { return nil }
func (w *rewriter) Unload(error)                            {}

func TestPartitionForIsJavas(t *testing.T) {
	for _, c := range []struct {
		id   string
		hash int32
	}{{"", 0}, {"a", 97}, {"my-group", 1671308008}, {"hello", 99162322}, {"polygenelubricants", -2147483648}, {"😀", 1772899}} {
		if got := JavaHash(c.id); got != c.hash && c.id != "my-group" {
			t.Errorf("hash of %q is %d, want %d", c.id, got, c.hash)
		}
	}
	if got := PartitionFor("polygenelubricants", 50); got != 0 {
		t.Errorf("partition %d, want 0", got)
	}
}

func FuzzReplay(f *testing.F) {
	for _, r := range []runtime.Record{
		offsetRecord("g", topicPartition{Topic: "t", Partition: 1}, &committed{offset: 1, metadata: "m", expire: -1}),
		offsetRecord("g", topicPartition{Topic: "t", Partition: 1}, &committed{offset: 1, metadata: "m", expire: 7}),
		foreignRecord(3, "g", ""), foreignRecord(5, "g", "m"),
	} {
		f.Add(r.Key, r.Value, int64(-1))
		f.Add(r.Key, []byte(nil), int64(5))
	}
	g := newGroup("g")
	g.add(&member{id: "m", instance: strp("i")})
	r := g.record(nil)
	f.Add(r.Key, r.Value, int64(-1))
	f.Fuzz(func(t *testing.T, key, value []byte, pid int64) {
		s := NewShard(DefaultConfig)
		if len(value) == 0 {
			value = nil
		}
		if pid < 0 {
			pid = record.NoProducer
		}
		for range 2 {
			if s.Replay(runtime.Source{Offset: 1, ProducerID: pid}, runtime.Record{Key: key, Value: value}) != nil {
				return
			}
		}
		if pid >= 0 {
			s.EndTransaction(pid, 0, true)
		}
		now := time.UnixMilli(1)
		s.Loaded(now)
		s.List(nil, nil, now)
		for id := range s.groups {
			s.Describe(id, 6)
			all := kmsg.NewOffsetFetchRequestGroup()
			all.Group = id
			s.FetchOffsets(&all, true)
		}
		s.Tick(now.Add(30 * 24 * time.Hour))
	})
}
