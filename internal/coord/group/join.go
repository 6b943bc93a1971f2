package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
)

// Caller is who sent a request.
type Caller struct {
	ClientID   string
	ClientHost string // as Kafka stores it: "/" and the address
}

// join is one JoinGroup request.
type join struct {
	*kmsg.JoinGroupRequest
	from   Caller
	newID  string // a fresh member id, should one be needed
	answer func(*kmsg.JoinGroupResponse)
}

func (j *join) session() time.Duration {
	return time.Duration(j.SessionTimeoutMillis) * time.Millisecond
}

func (j *join) rebalance() time.Duration {
	if j.Version < 1 || j.RebalanceTimeoutMillis < 0 {
		return j.session()
	}
	return time.Duration(j.RebalanceTimeoutMillis) * time.Millisecond
}

func failedJoin(memberID string, code int16) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.ErrorCode, r.MemberID, r.Generation = code, memberID, noGeneration
	r.Protocol = strp("")
	return r
}

func (m *member) answerJoin(r *kmsg.JoinGroupResponse) {
	if f := m.join; f != nil {
		m.join = nil
		f(r)
	}
}

func (m *member) answerSync(r *kmsg.SyncGroupResponse) {
	if f := m.sync; f != nil {
		m.sync = nil
		f(r)
	}
}

// Join decides a JoinGroup request; the answer may come much later.
func (s *Shard) Join(j *join, now time.Time) []runtime.Result {
	refuse := func(e *kerr.Error, memberID string) []runtime.Result {
		j.answer(failedJoin(memberID, e.Code))
		return nil
	}
	cfg := s.config()
	if j.Group == "" {
		return refuse(kerr.InvalidGroupID, j.MemberID)
	}
	if d := j.session(); d < cfg.MinSession || d > cfg.MaxSession {
		return refuse(kerr.InvalidSessionTimeout, j.MemberID)
	}
	g := s.groups[j.Group]
	var out []runtime.Result
	if g != nil && g.kind != Classic {
		if g.kind == Share || s.inUse(g, now) {
			return refuse(kerr.InconsistentGroupProtocol, j.MemberID)
		}
		out = s.convert(g, now) // without members it may change its protocol
	}
	if g == nil {
		if j.MemberID != "" {
			return refuse(kerr.UnknownMemberID, j.MemberID)
		}
		g = s.group(j.Group)
		s.armExpiry(now)
	}
	if !g.accepts(j.MemberID, cfg.MaxSize) {
		j.answer(failedJoin("", kerr.GroupMaxSizeReached.Code))
		return out
	}
	if !g.supports(j.ProtocolType, j.Protocols) {
		return append(out, refuse(kerr.InconsistentGroupProtocol, j.MemberID)...)
	}
	if j.MemberID == "" {
		return append(out, s.joinNew(g, j, now)...)
	}
	return append(out, s.joinKnown(g, j, now)...)
}

// accepts applies group.max.size. While a rebalance goes on, who waits already is counted,
// so that the first to come back keep their place.
func (g *group) accepts(memberID string, limit int) bool {
	m := g.members[memberID]
	switch g.state {
	case Empty:
		return true
	case PreparingRebalance:
		return m != nil && m.join != nil || g.awaitingJoin() < limit
	}
	return m != nil || len(g.order) < limit
}

func (s *Shard) joinNew(g *group, j *join, now time.Time) []runtime.Result {
	if j.InstanceID != nil {
		if old := g.static[*j.InstanceID]; old != nil {
			return s.rejoinStatic(g, old, j, now)
		}
		return s.addMember(g, j.newID, j, now)
	}
	if j.Version >= 4 {
		// KIP-394: the member must come back with its id, so that a client which never
		// heard the answer does not leave a ghost in the group.
		id := j.newID
		t := &timer{}
		g.pending[id] = t
		s.arm(t, now.Add(j.session()), func(now time.Time) []runtime.Result {
			delete(g.pending, id)
			return s.maybeComplete(g, now)
		})
		j.answer(failedJoin(id, kerr.MemberIDRequired.Code))
		return nil
	}
	return s.addMember(g, j.newID, j, now)
}

func (s *Shard) joinKnown(g *group, j *join, now time.Time) []runtime.Result {
	if t := g.pending[j.MemberID]; t != nil {
		if j.InstanceID != nil { // a pending id was given to a dynamic member
			j.answer(failedJoin(j.MemberID, kerr.UnknownMemberID.Code))
			return nil
		}
		t.off()
		delete(g.pending, j.MemberID)
		return s.addMember(g, j.MemberID, j, now)
	}
	if e := g.check(j.MemberID, j.InstanceID); e != nil {
		j.answer(failedJoin(j.MemberID, e.Code))
		return nil
	}
	m := g.members[j.MemberID]
	switch g.state {
	case PreparingRebalance:
	case CompletingRebalance:
		if m.matches(j.Protocols) {
			j.answer(g.joined(m))
			return nil
		}
	case Stable:
		if g.leader != m.id && m.matches(j.Protocols) {
			j.answer(g.joined(m))
			return nil
		}
	default:
		j.answer(failedJoin(j.MemberID, kerr.UnknownMemberID.Code))
		return nil
	}
	s.update(g, m, j)
	return s.prepareOrComplete(g, now)
}

// update takes a rejoining member's request in; an earlier one that still waits loses.
func (s *Shard) update(g *group, m *member, j *join) {
	m.answerJoin(failedJoin(m.id, kerr.RebalanceInProgress.Code))
	m.protocols, m.rebalance, m.session = j.Protocols, j.rebalance(), j.session()
	m.clientID, m.host = j.from.ClientID, j.from.ClientHost
	m.join = j.answer
}

func (s *Shard) addMember(g *group, id string, j *join, now time.Time) []runtime.Result {
	if len(g.order) == 0 {
		g.protocolType = j.ProtocolType
	}
	m := &member{id: id, instance: j.InstanceID, isNew: true}
	s.update(g, m, j)
	if g.state == PreparingRebalance && g.before == Empty {
		g.newMember = true
	}
	g.add(m)
	s.session(g, m, newMemberTimeout, now)
	return s.prepareOrComplete(g, now)
}

// rejoinStatic gives a static member that comes back without its id a new one. The old id
// is fenced from now on.
func (s *Shard) rejoinStatic(g *group, m *member, j *join, now time.Time) []runtime.Result {
	oldID, oldLeader := m.id, g.leader
	before := *m
	m.answerJoin(failedJoin(oldID, kerr.FencedInstanceID.Code))
	m.answerSync(failedSync(kerr.FencedInstanceID.Code))
	g.rename(m, j.newID)
	s.update(g, m, j)
	s.session(g, m, m.session, now)
	switch {
	case g.state == PreparingRebalance:
		return s.maybeComplete(g, now)
	case g.state != Stable || g.selectProtocol() != g.protocol:
		return s.prepareOrComplete(g, now)
	}
	// Nothing that the assignment rests on changed: the new id is stored, and the group
	// goes on without a rebalance.
	answer := m.join
	m.join = nil
	answered := func(now time.Time, err error) []runtime.Result {
		if err != nil {
			answer(failedJoin(j.newID, runtime.ClientError(err).Code))
			return nil
		}
		r := g.joined(m)
		if g.leader == m.id {
			r.SkipAssignment = j.Version >= 9
			if !r.SkipAssignment { // an old client would assign anew if it heard that it leads
				r.LeaderID, r.Members = oldLeader, nil
			}
		}
		answer(r)
		return nil
	}
	return []runtime.Result{{
		Records: []runtime.Record{g.record(nil)},
		Undo: func() {
			g.rename(m, oldID)
			m.protocols, m.rebalance, m.session = before.protocols, before.rebalance, before.session
			m.clientID, m.host = before.clientID, before.host
		},
		Done: answered,
	}}
}

// rename gives a member another id in its place.
func (g *group) rename(m *member, id string) {
	old := m.id
	delete(g.members, old)
	m.id = id
	g.members[id] = m
	if g.leader == old {
		g.leader = id
	}
	if g.pendingSync[old] {
		delete(g.pendingSync, old)
		g.pendingSync[id] = true
	}
}

// joined is the answer for a member of the current generation.
func (g *group) joined(m *member) *kmsg.JoinGroupResponse {
	r := kmsg.NewPtrJoinGroupResponse()
	r.Generation, r.LeaderID, r.MemberID = g.generation, g.leader, m.id
	r.ProtocolType, r.Protocol = strp(g.protocolType), strp(g.protocol)
	if g.leader != m.id {
		return r
	}
	for _, o := range g.order {
		r.Members = append(r.Members, kmsg.JoinGroupResponseMember{MemberID: o.id, InstanceID: o.instance, ProtocolMetadata: orEmpty(o.metadata(g.protocol))})
	}
	return r
}

// prepareOrComplete starts a rebalance, or ends the one that goes on if all are there.
func (s *Shard) prepareOrComplete(g *group, now time.Time) []runtime.Result {
	if g.state != PreparingRebalance {
		return s.prepare(g, now)
	}
	return s.maybeComplete(g, now)
}

func (s *Shard) maybeComplete(g *group, now time.Time) []runtime.Result {
	if g.state == PreparingRebalance && g.before != Empty && g.allJoined() {
		return s.complete(g, now)
	}
	return nil
}

// prepare begins a rebalance.
func (s *Shard) prepare(g *group, now time.Time) []runtime.Result {
	if g.state == CompletingRebalance {
		s.propagate(g, failedSync(kerr.RebalanceInProgress.Code), now)
		for _, m := range g.order {
			m.assignment = nil
		}
	}
	g.syncTimer.off()
	clear(g.pendingSync)
	initial := g.state == Empty
	g.to(PreparingRebalance, now)
	if initial {
		// More members are probably on their way; waiting for them saves rebalances.
		longest := g.maxRebalance()
		delay := min(s.config().InitialDelay, longest)
		g.newMember, g.delayLeft = false, longest-delay
		s.armInitial(g, delay, now)
		return nil
	}
	s.arm(&g.joinTimer, now.Add(g.maxRebalance()), func(now time.Time) []runtime.Result { return s.complete(g, now) })
	return s.maybeComplete(g, now)
}

func (s *Shard) armInitial(g *group, delay time.Duration, now time.Time) {
	s.arm(&g.joinTimer, now.Add(delay), func(now time.Time) []runtime.Result {
		if !g.newMember || g.delayLeft <= 0 {
			return s.complete(g, now)
		}
		next := min(s.config().InitialDelay, g.delayLeft)
		g.newMember, g.delayLeft = false, g.delayLeft-next
		s.armInitial(g, next, now)
		return nil
	})
}

// complete ends the joining: who is not there is out, and the next generation begins.
func (s *Shard) complete(g *group, now time.Time) []runtime.Result {
	if g.state != PreparingRebalance {
		return nil
	}
	g.joinTimer.off()
	for _, m := range append([]*member(nil), g.order...) {
		if m.join == nil && m.instance == nil {
			m.timer.off()
			g.drop(m)
		}
	}
	if len(g.order) > 0 && !g.electLeader() {
		// Static members only, and none came back yet.
		s.arm(&g.joinTimer, now.Add(g.maxRebalance()), func(now time.Time) []runtime.Result { return s.complete(g, now) })
		return nil
	}
	g.generation++
	clear(g.pendingSync)
	if len(g.order) == 0 {
		g.protocol, g.hasProtocol, g.leader = "", false, ""
		g.to(Empty, now)
		g.computeTopics()
		return []runtime.Result{s.store(g)}
	}
	g.protocol, g.hasProtocol = g.selectProtocol(), true
	g.to(CompletingRebalance, now)
	g.computeTopics()
	for _, m := range g.order {
		m.answerJoin(g.joined(m))
		s.session(g, m, m.session, now)
		m.isNew = false
		g.pendingSync[m.id] = true
	}
	s.arm(&g.syncTimer, now.Add(g.maxRebalance()), func(now time.Time) []runtime.Result { return s.expireSync(g, now) })
	return nil
}

// store writes the group as it is. A failure is not the end: the next generation is stored
// again.
func (s *Shard) store(g *group) runtime.Result {
	was := g.stored
	g.stored = true
	return runtime.Result{Records: []runtime.Record{g.record(nil)}, Undo: func() { g.stored = was }}
}

// electLeader keeps the leader if it came back, else takes the first who did.
func (g *group) electLeader() bool {
	if m := g.members[g.leader]; m != nil && m.join != nil {
		return true
	}
	for _, m := range g.order {
		if m.join != nil {
			g.leader = m.id
			return true
		}
	}
	return false
}

// expireSync removes the members that joined the generation and never asked for their
// assignment.
func (s *Shard) expireSync(g *group, now time.Time) []runtime.Result {
	if g.state != CompletingRebalance && g.state != Stable || len(g.pendingSync) == 0 {
		return nil
	}
	for _, m := range append([]*member(nil), g.order...) {
		if g.pendingSync[m.id] {
			m.timer.off()
			g.drop(m)
		}
	}
	return s.prepare(g, now)
}

// session restarts a member's session.
func (s *Shard) session(g *group, m *member, d time.Duration, now time.Time) {
	s.arm(&m.timer, now.Add(d), func(now time.Time) []runtime.Result { return s.expireMember(g, m, now) })
}

// expireMember removes a member that was silent for its session. Who waits in JoinGroup or
// SyncGroup is not silent; its session begins again with the answer. A new member, whose
// client may have gone before it ever got an answer, has newMemberTimeout.
func (s *Shard) expireMember(g *group, m *member, now time.Time) []runtime.Result {
	if g.members[m.id] != m || !m.isNew && (m.join != nil || m.sync != nil) {
		return nil
	}
	return s.remove(g, now, m)
}

// remove takes members out and lets the group go on without them.
func (s *Shard) remove(g *group, now time.Time, gone ...*member) []runtime.Result {
	for _, m := range gone {
		m.timer.off()
		g.drop(m)
		m.answerJoin(failedJoin(m.id, kerr.UnknownMemberID.Code))
		m.answerSync(failedSync(kerr.UnknownMemberID.Code))
	}
	switch g.state {
	case Stable, CompletingRebalance:
		return s.prepare(g, now)
	case PreparingRebalance:
		return s.maybeComplete(g, now)
	}
	return nil
}
