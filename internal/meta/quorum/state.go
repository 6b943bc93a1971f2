package quorum

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Role is a replica's state in its epoch.
type Role int8

const (
	Unattached Role = iota
	Prospective
	Candidate
	Leader
	Follower
	Resigned
)

func (r Role) String() string {
	return [...]string{"Unattached", "Prospective", "Candidate", "Leader", "Follower", "Resigned"}[r]
}

// Timing holds the quorum's configured times.
type Timing struct {
	Election   time.Duration // controller.quorum.election.timeout.ms
	Fetch      time.Duration // controller.quorum.fetch.timeout.ms
	Request    time.Duration // controller.quorum.request.timeout.ms
	Retry      time.Duration // controller.quorum.retry.backoff.ms
	BackoffMax time.Duration // controller.quorum.election.backoff.max.ms
}

// logEnd is where a log ends: the epoch of its last batch and the offset after it.
type logEnd struct {
	epoch  int32
	offset int64
}

func (a logEnd) upToDate(own logEnd) bool {
	return a.epoch > own.epoch || a.epoch == own.epoch && a.offset >= own.offset
}

// progress is what a leader knows of a replica.
type progress struct {
	end        int64 // -1 before its first fetch
	leaderEnd  int64 // the leader's end at that fetch
	fetchedAt  time.Time
	caughtUpAt time.Time
}

// machine is the state machine of one replica: no I/O, and time is handed in. Methods
// change it and set dirty where quorum-state must be rewritten before anything of the new
// state is shown. Spec: kraft.md 2 to 4.
type machine struct {
	self   ReplicaKey
	timing Timing
	random func() uint64
	voters VoterSet

	role      Role
	epoch     int32
	leader    int32 // -1 unknown
	endpoints []Endpoint
	voted     ReplicaKey
	deadline  time.Time // election, fetch or check-quorum timer; zero never
	dirty     bool
	turns     int // counts changes of state, so that late answers are known

	hw int64 // -1 unknown

	fetched bool           // follower: from this leader since following it
	votes   map[int32]bool // prospective, candidate: answers by voter
	kept    bool           // prospective: the leader before was lost only to its timer

	start     int64 // leader: first offset of the epoch
	replicas  map[ReplicaKey]*progress
	heard     map[ReplicaKey]bool // since the check-quorum timer was restarted
	heartbeat time.Time
	granting  []int32

	ended     map[int32]bool // resigned: answered EndQuorumEpoch
	preferred []ReplicaKey
}

// begin enters the first state after a start. logEpoch is the last epoch in the log.
func (m *machine) begin(s stored, logEpoch int32, now time.Time) {
	m.hw, m.leader, m.voted = -1, -1, nobody
	m.dirty = true
	voter := m.voters.find(s.leader)
	switch {
	case s.epoch < logEpoch:
		m.epoch = logEpoch
		m.toUnattached(logEpoch, -1, nobody, m.electionAfter(now))
	case s.leader == m.self.ID && m.voters.has(m.self):
		m.epoch, m.leader = s.epoch, s.leader
		m.toResigned(nil, now)
	case s.leader < 0 && s.voted.ID == m.self.ID && m.voters.has(m.self):
		m.epoch = s.epoch
		m.toCandidateOf(s.epoch, now)
	case s.leader >= 0 && s.leader != m.self.ID && voter != nil:
		m.epoch, m.voted = s.epoch, s.voted
		m.toFollower(s.epoch, s.leader, voter.Endpoints, now)
	default:
		m.epoch = s.epoch
		leader := s.leader
		if leader == m.self.ID {
			leader = -1
		}
		m.toUnattached(s.epoch, leader, s.voted, m.electionAfter(now))
	}
	if m.alone() {
		m.standAlone(now)
	}
}

func (m *machine) voter() bool { return m.voters.has(m.self) }
func (m *machine) alone() bool { return m.voters.onlyIs(m.self) }

// standAlone elects the only voter: nobody else can have an opinion.
func (m *machine) standAlone(now time.Time) {
	m.toCandidateOf(m.epoch+1, now)
}

func (m *machine) electionAfter(now time.Time) time.Time {
	if !m.voter() {
		return time.Time{}
	}
	t := m.timing.Election
	if t > 0 {
		t += time.Duration(m.random() % uint64(t))
	}
	return now.Add(t)
}

func (m *machine) state() stored {
	s := stored{leader: m.leader, epoch: m.epoch, voted: m.voted}
	switch m.role {
	case Leader:
		s.voted = nobody
	case Candidate:
		s.leader, s.voted = -1, m.self
	}
	return s
}

func (m *machine) enter(r Role) {
	m.role = r
	m.turns++
	m.votes, m.replicas, m.heard, m.granting, m.ended = nil, nil, nil, nil, nil
	m.fetched, m.kept = false, false
	m.heartbeat = time.Time{}
}

func (m *machine) toUnattached(epoch, leader int32, voted ReplicaKey, deadline time.Time) {
	m.enter(Unattached)
	m.epoch, m.leader, m.voted, m.endpoints = epoch, leader, voted, nil
	m.deadline, m.dirty = deadline, true
}

// higher follows an epoch above the own one, seen anywhere without its leader.
func (m *machine) higher(epoch int32, now time.Time) {
	deadline := m.deadline // what is left of an election goes on
	if m.role == Follower || m.role == Leader || m.role == Prospective && m.kept || !m.voter() {
		deadline = m.electionAfter(now)
	}
	m.toUnattached(epoch, -1, nobody, deadline)
	if m.alone() {
		m.standAlone(now)
	}
}

func (m *machine) toFollower(epoch, leader int32, endpoints []Endpoint, now time.Time) {
	voted := m.voted
	if epoch != m.epoch {
		voted = nobody
	}
	m.enter(Follower)
	m.epoch, m.leader, m.endpoints, m.voted = epoch, leader, endpoints, voted
	m.dirty = true
	m.restartFetchTimer(now)
}

func (m *machine) restartFetchTimer(now time.Time) {
	m.deadline = time.Time{}
	if m.voter() {
		m.deadline = now.Add(m.timing.Fetch)
	}
}

func (m *machine) toProspective(now time.Time) {
	if m.alone() {
		m.standAlone(now)
		return
	}
	m.enter(Prospective)
	m.kept = true
	m.votes = map[int32]bool{m.self.ID: true}
	m.deadline = m.electionAfter(now)
	m.countVotes(now)
}

func (m *machine) toCandidateOf(epoch int32, now time.Time) {
	m.enter(Candidate)
	m.epoch, m.leader, m.endpoints, m.voted = epoch, -1, nil, m.self
	m.votes = map[int32]bool{m.self.ID: true}
	m.deadline, m.dirty = m.electionAfter(now), true
	m.countVotes(now)
}

func (m *machine) toLeader(now time.Time) {
	granting := []int32{}
	for _, id := range slices.Sorted(maps.Keys(m.votes)) {
		if m.votes[id] {
			granting = append(granting, id)
		}
	}
	m.enter(Leader)
	m.leader, m.endpoints, m.voted, m.granting = m.self.ID, nil, nobody, granting
	m.dirty = true
	m.replicas = map[ReplicaKey]*progress{}
	m.hw, m.start = -1, -1 // start is set when the log's end is known
	m.restartCheckQuorum(now)
	if len(m.voters) > 1 {
		m.heartbeat = now
	}
}

func (m *machine) restartCheckQuorum(now time.Time) {
	m.heard = map[ReplicaKey]bool{}
	m.deadline = time.Time{}
	if !m.alone() {
		m.deadline = now.Add(m.timing.Fetch * 3 / 2)
	}
}

func (m *machine) toResigned(preferred []ReplicaKey, now time.Time) {
	m.enter(Resigned)
	m.ended, m.preferred = map[int32]bool{}, preferred
	m.deadline = m.electionAfter(now)
}

// resign gives up leadership.
func (m *machine) resign(now time.Time) {
	if m.role == Leader {
		m.toResigned(m.successors(), now)
	}
}

// successors are the other voters, those that hold most first.
func (m *machine) successors() []ReplicaKey {
	var keys []ReplicaKey
	for _, v := range m.voters {
		if v.VoterID != m.self.ID {
			keys = append(keys, ReplicaKey{v.VoterID, v.VoterDirectoryID})
		}
	}
	slices.SortStableFunc(keys, func(a, b ReplicaKey) int { return cmp.Compare(m.endOf(b), m.endOf(a)) })
	return keys
}

func (m *machine) endOf(k ReplicaKey) int64 {
	for r, p := range m.replicas {
		if r.ID == k.ID && (k.Dir.IsZero() || k.Dir == r.Dir) {
			return p.end
		}
	}
	return -1
}

// tick acts on the timer if it is due.
func (m *machine) tick(now time.Time) {
	if m.deadline.IsZero() || now.Before(m.deadline) {
		return
	}
	switch m.role {
	case Unattached, Candidate, Follower:
		if m.voter() {
			m.toProspective(now)
		} else {
			m.deadline = time.Time{}
		}
	case Prospective:
		m.giveUpProspect(now, now)
	case Leader:
		m.resign(now)
	case Resigned:
		m.toUnattached(m.epoch+1, -1, nobody, m.electionAfter(now))
		if m.alone() {
			m.standAlone(now)
		}
	}
}

// giveUpProspect returns a loser to the leader it came from, or to waiting.
func (m *machine) giveUpProspect(now, unattachedUntil time.Time) {
	if m.leader >= 0 && len(m.endpoints) > 0 {
		m.toFollower(m.epoch, m.leader, m.endpoints, now)
		return
	}
	m.toUnattached(m.epoch, m.leader, m.voted, unattachedUntil)
}

// voteRequest is one replica's wish to be elected.
type voteRequest struct {
	epoch     int32
	candidate ReplicaKey
	log       logEnd
	preVote   bool
}

// vote decides a request of the own epoch. Spec: kraft.md 2.3.
func (m *machine) vote(v voteRequest, own logEnd, now time.Time) bool {
	upToDate := v.log.upToDate(own)
	if v.preVote {
		switch m.role {
		case Leader:
			return false
		case Follower:
			return upToDate && !m.fetched
		}
		return upToDate
	}
	if m.role != Unattached && m.role != Prospective {
		return false
	}
	if m.voted.ID >= 0 {
		return m.voted.ID == v.candidate.ID && (m.voted.Dir.IsZero() || m.voted.Dir == v.candidate.Dir)
	}
	if m.leader >= 0 || !upToDate {
		return false
	}
	m.voted, m.dirty = v.candidate, true
	m.deadline = m.electionAfter(now)
	return true
}

// voteAnswer records a voter's answer. A second, contradicting one to a candidate is ignored.
func (m *machine) voteAnswer(from int32, granted bool, now time.Time) {
	if m.role != Candidate && m.role != Prospective {
		return
	}
	if _, have := m.votes[from]; have && m.role == Candidate || m.voters.find(from) == nil {
		return
	}
	m.votes[from] = granted
	m.countVotes(now)
}

func (m *machine) countVotes(now time.Time) {
	yes, no := 0, 0
	for _, v := range m.voters {
		switch granted, have := m.votes[v.VoterID]; {
		case granted:
			yes++
		case have:
			no++
		}
	}
	switch {
	case yes >= m.voters.majority() && m.role == Candidate:
		m.toLeader(now)
	case yes >= m.voters.majority():
		m.toCandidateOf(m.epoch+1, now)
	case no > len(m.voters)-m.voters.majority() && m.role == Prospective:
		m.giveUpProspect(now, m.electionAfter(now))
	}
}

// skipPreVote stands at once: a voter does not know pre-votes.
func (m *machine) skipPreVote(now time.Time) {
	if m.role == Prospective {
		m.toCandidateOf(m.epoch+1, now)
	}
}

// follow takes in that someone named the leader of an epoch that is not below the own. An
// error means that the sender breaks the protocol: two leaders in one epoch.
func (m *machine) follow(epoch, leader int32, endpoints []Endpoint, now time.Time) error {
	if leader >= 0 && len(endpoints) == 0 {
		if v := m.voters.find(leader); v != nil {
			endpoints = v.Endpoints
		}
	}
	switch {
	case epoch < m.epoch:
		return nil
	case leader < 0 && epoch == m.epoch:
		return nil
	case leader < 0:
		m.higher(epoch, now)
		return nil
	case leader == m.self.ID && m.role == Leader && epoch == m.epoch, leader == m.self.ID && m.role == Resigned && epoch == m.epoch:
		return nil
	case leader == m.self.ID:
		return fmt.Errorf("named leader of epoch %d, which this node is not", epoch)
	case epoch == m.epoch && m.leader >= 0 && m.leader != leader:
		return fmt.Errorf("epoch %d has leader %d, and %d was named", epoch, m.leader, leader)
	case epoch == m.epoch && m.role == Resigned, epoch == m.epoch && m.role == Leader:
		return fmt.Errorf("epoch %d is led by this node, and %d was named", epoch, leader)
	case len(endpoints) == 0:
		// Kafka dies here; knowing the leader's id without a way to it is no more than
		// having to find it through a bootstrap server.
		if epoch > m.epoch {
			m.higher(epoch, now)
		}
		return nil
	case epoch > m.epoch, m.role != Follower, len(endpoints) > len(m.endpoints):
		m.toFollower(epoch, leader, endpoints, now)
	}
	return nil
}

// fetchSucceeded is an answer without error of the leader that is followed.
func (m *machine) fetchSucceeded(now time.Time) {
	if m.role == Follower {
		m.fetched = true
		m.restartFetchTimer(now)
	}
}

// endEpoch is EndQuorumEpoch of the leader that is followed.
func (m *machine) endEpoch(leader int32, preferred []ReplicaKey, now time.Time) {
	if m.role != Follower || m.leader != leader || !m.voter() {
		return
	}
	m.deadline = now.Add(successorBackoff(m.self, preferred, m.timing.BackoffMax))
}

func successorBackoff(self ReplicaKey, preferred []ReplicaKey, limit time.Duration) time.Duration {
	n := len(preferred)
	if n == 0 {
		return 0
	}
	at := slices.IndexFunc(preferred, func(k ReplicaKey) bool { return k.ID == self.ID && (k.Dir.IsZero() || k.Dir == self.Dir) })
	switch {
	case at == 0:
		return 0
	case at < 0:
		return limit
	}
	ms := limit.Milliseconds()
	return min(limit, time.Duration((ms>>min(n-1, 62))<<min(at-1, 62))*time.Millisecond)
}

// replicaFetched is a valid fetch at the leader, whose log ends at leaderEnd.
func (m *machine) replicaFetched(k ReplicaKey, offset, leaderEnd int64, now time.Time) {
	if k.ID < 0 {
		return
	}
	p := m.replicas[k]
	if p == nil {
		p = &progress{end: -1}
		m.replicas[k] = p
	}
	if offset >= leaderEnd {
		p.caughtUpAt = now
	} else if !p.fetchedAt.IsZero() && offset >= p.leaderEnd {
		p.caughtUpAt = p.fetchedAt
	}
	p.end, p.leaderEnd, p.fetchedAt = offset, leaderEnd, now
	m.hear(k, now)
}

// hear counts a sign of life for check-quorum.
func (m *machine) hear(k ReplicaKey, now time.Time) {
	if m.role != Leader || !m.voters.has(k) || k.ID == m.self.ID {
		return
	}
	m.heard[k] = true
	need := m.voters.majority()
	if m.voter() {
		need--
	}
	if len(m.heard) >= need {
		m.restartCheckQuorum(now)
	}
}

// advance moves the leader's high watermark; durable is the own end on disk.
func (m *machine) advance(durable int64) bool {
	if m.role != Leader || m.start < 0 || len(m.voters) == 0 {
		return false
	}
	ends := make([]int64, len(m.voters))
	for i, v := range m.voters {
		k := ReplicaKey{v.VoterID, v.VoterDirectoryID}
		if v.VoterID == m.self.ID && m.voter() {
			ends[i] = durable
		} else {
			ends[i] = m.endOf(k)
		}
	}
	slices.SortFunc(ends, func(a, b int64) int { return cmp.Compare(b, a) })
	if hw := ends[len(ends)/2]; hw > m.start && hw > m.hw {
		m.hw = hw
		return true
	}
	return false
}

// setHW is a follower's high watermark.
func (m *machine) setHW(hw int64) bool {
	if hw > m.hw {
		m.hw = hw
		return true
	}
	return false
}
