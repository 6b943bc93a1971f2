package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
)

func failedSync(code int16) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	r.ErrorCode, r.MemberAssignment = code, []byte{}
	return r
}

func (g *group) synced(m *member) *kmsg.SyncGroupResponse {
	r := kmsg.NewPtrSyncGroupResponse()
	r.ProtocolType, r.Protocol, r.MemberAssignment = strp(g.protocolType), strp(g.protocol), orEmpty(m.assignment)
	return r
}

// propagate answers all who wait in SyncGroup with an error.
func (s *Shard) propagate(g *group, failure *kmsg.SyncGroupResponse, now time.Time) {
	for _, m := range g.order {
		if m.sync != nil {
			m.answerSync(failure)
			s.session(g, m, m.session, now)
		}
	}
}

// Sync decides a SyncGroup request. Followers wait for the leader's, and the leader for
// the commit of what it assigned.
func (s *Shard) Sync(rq *kmsg.SyncGroupRequest, answer func(*kmsg.SyncGroupResponse), now time.Time) []runtime.Result {
	g, e := s.validateSync(rq)
	if e != nil {
		answer(failedSync(e.Code))
		return nil
	}
	m := g.members[rq.MemberID]
	delete(g.pendingSync, m.id)
	if g.state == Stable {
		s.session(g, m, m.session, now)
		answer(g.synced(m))
		return nil
	}
	m.answerSync(failedSync(kerr.RebalanceInProgress.Code))
	m.sync = answer
	if g.leader != m.id {
		return nil
	}
	assignments := map[string][]byte{} // who is not named gets nothing
	for _, a := range rq.GroupAssignment {
		if g.members[a.MemberID] != nil {
			assignments[a.MemberID] = a.MemberAssignment
		}
	}
	generation, was := g.generation, g.stored
	g.stored = true
	rec := g.record(assignments)
	return []runtime.Result{{
		Records: []runtime.Record{rec},
		Undo:    func() { g.stored = was },
		Done: func(now time.Time, err error) []runtime.Result {
			return s.assigned(g, generation, assignments, now, err)
		},
	}}
}

// assigned hands the stored assignment out, if the group still waits for it.
func (s *Shard) assigned(g *group, generation int32, assignments map[string][]byte, now time.Time, err error) []runtime.Result {
	if g.state != CompletingRebalance || g.generation != generation || s.groups[g.id] != g {
		return nil
	}
	if err != nil {
		s.propagate(g, failedSync(runtime.ClientError(err).Code), now)
		return s.prepare(g, now)
	}
	g.to(Stable, now)
	for _, m := range g.order {
		m.assignment = assignments[m.id]
		if m.sync != nil {
			m.answerSync(g.synced(m))
			s.session(g, m, m.session, now)
		}
	}
	return nil
}

func (s *Shard) validateSync(rq *kmsg.SyncGroupRequest) (*group, *kerr.Error) {
	if rq.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	g := s.groups[rq.Group]
	if g == nil || g.kind != Classic {
		return nil, kerr.UnknownMemberID
	}
	if e := g.check(rq.MemberID, rq.InstanceID); e != nil {
		return nil, e
	}
	switch {
	case rq.Generation != g.generation:
		return nil, kerr.IllegalGeneration
	case rq.ProtocolType != nil && *rq.ProtocolType != g.protocolType, rq.Protocol != nil && *rq.Protocol != g.protocol:
		return nil, kerr.InconsistentGroupProtocol
	case g.state == Empty:
		return nil, kerr.UnknownMemberID
	case g.state == PreparingRebalance:
		return nil, kerr.RebalanceInProgress
	}
	return g, nil
}

// Heartbeat keeps a member's session.
func (s *Shard) Heartbeat(rq *kmsg.HeartbeatRequest, now time.Time) *kerr.Error {
	if rq.Group == "" {
		return kerr.InvalidGroupID
	}
	g := s.groups[rq.Group]
	if g == nil || g.kind != Classic {
		return kerr.UnknownMemberID
	}
	if e := g.check(rq.MemberID, rq.InstanceID); e != nil {
		return e
	}
	if rq.Generation != g.generation {
		return kerr.IllegalGeneration
	}
	m := g.members[rq.MemberID]
	switch g.state {
	case Empty:
		return kerr.UnknownMemberID
	case PreparingRebalance:
		s.keepAlive(g, m, now)
		return kerr.RebalanceInProgress
	}
	s.keepAlive(g, m, now)
	return nil
}

func (s *Shard) keepAlive(g *group, m *member, now time.Time) {
	if !m.isNew {
		s.session(g, m, m.session, now)
	}
}

// Leave removes members. v3 and later may name several, and static ones by instance alone.
func (s *Shard) Leave(rq *kmsg.LeaveGroupRequest, now time.Time) (*kmsg.LeaveGroupResponse, []runtime.Result) {
	resp := rq.ResponseKind().(*kmsg.LeaveGroupResponse)
	if rq.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp, nil
	}
	members := rq.Members
	if rq.Version < 3 {
		members = []kmsg.LeaveGroupRequestMember{{MemberID: rq.MemberID}}
	}
	g := s.groups[rq.Group]
	if g != nil && g.kind != Classic {
		g = nil
	}
	var gone []*member
	pendingGone := false
	for _, l := range members {
		code := int16(0)
		switch m, e := g.leaving(l); {
		case e != nil:
			code = e.Code
		case m != nil:
			gone = append(gone, m)
			m.timer.off()
			g.drop(m)
			m.answerJoin(failedJoin(m.id, kerr.UnknownMemberID.Code))
			m.answerSync(failedSync(kerr.UnknownMemberID.Code))
		default:
			g.pending[l.MemberID].off()
			delete(g.pending, l.MemberID)
			pendingGone = true
		}
		if rq.Version < 3 {
			resp.ErrorCode = code
			continue
		}
		a := kmsg.NewLeaveGroupResponseMember()
		a.MemberID, a.InstanceID, a.ErrorCode = l.MemberID, l.InstanceID, code
		resp.Members = append(resp.Members, a)
	}
	if len(gone) == 0 && !pendingGone {
		return resp, nil
	}
	if len(gone) > 0 {
		return resp, s.remove(g, now)
	}
	return resp, s.maybeComplete(g, now)
}

// leaving finds who leaves: a member, or with neither member nor error a pending id.
func (g *group) leaving(l kmsg.LeaveGroupRequestMember) (*member, *kerr.Error) {
	if g == nil {
		return nil, kerr.UnknownMemberID
	}
	if l.MemberID == "" {
		if l.InstanceID == nil || g.static[*l.InstanceID] == nil {
			return nil, kerr.UnknownMemberID
		}
		return g.static[*l.InstanceID], nil
	}
	if g.pending[l.MemberID] != nil {
		if l.InstanceID != nil {
			return nil, kerr.UnknownMemberID
		}
		return nil, nil
	}
	if e := g.check(l.MemberID, l.InstanceID); e != nil {
		return nil, e
	}
	return g.members[l.MemberID], nil
}
