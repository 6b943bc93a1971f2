package group

import (
	"bytes"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/record"
)

// State is a classic group's state.
type State int8

const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
)

func (s State) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

const (
	consumerProtocol = "consumer" // protocol type of consumers
	newMemberTimeout = 5 * time.Minute
	noGeneration     = int32(-1)
)

// group is one group. For kinds other than Classic only offsets and the foreign part are used.
type group struct {
	id      string
	kind    Kind
	offsets map[topicPartition]*committed

	// Classic.
	state        State
	before       State // state before PreparingRebalance
	since        int64 // ms, when the state began; -1 unknown
	protocolType string
	generation   int32
	protocol     string
	hasProtocol  bool
	leader       string
	members      map[string]*member
	order        []*member // as they joined
	static       map[string]*member
	pending      map[string]*timer // ids given out by MEMBER_ID_REQUIRED
	pendingSync  map[string]bool
	topics       map[string]bool // subscribed; nil unknown
	newMember    bool            // one came during the initial delay
	delayLeft    time.Duration   // of the initial rebalance
	joinTimer    timer
	syncTimer    timer
	stored       bool // a GroupMetadata record is in the log

	// Other protocols: the keys that are live in the log, and whose records they are.
	keys       map[string]int16
	memberKeys int
	groupKeys  int
}

// member is a classic member.
type member struct {
	id, clientID, host string
	instance           *string
	rebalance, session time.Duration
	protocols          []kmsg.JoinGroupRequestProtocol
	assignment         []byte
	isNew              bool
	join               func(*kmsg.JoinGroupResponse) // set while waiting in JoinGroup
	sync               func(*kmsg.SyncGroupResponse) // likewise
	timer              timer
}

func newGroup(id string) *group {
	return &group{
		id: id, since: -1, offsets: map[topicPartition]*committed{}, members: map[string]*member{}, static: map[string]*member{},
		pending: map[string]*timer{}, pendingSync: map[string]bool{}, keys: map[string]int16{},
	}
}

func (g *group) to(s State, now time.Time) {
	g.before, g.state, g.since = g.state, s, record.Millis(now)
}

func (g *group) awaitingJoin() (n int) {
	for _, m := range g.order {
		if m.join != nil {
			n++
		}
	}
	return n
}

func (g *group) allJoined() bool { return len(g.pending) == 0 && g.awaitingJoin() == len(g.order) }

// maxRebalance is the longest rebalance timeout of the members.
func (g *group) maxRebalance() (d time.Duration) {
	for _, m := range g.order {
		d = max(d, m.rebalance)
	}
	return d
}

func (m *member) metadata(protocol string) []byte {
	for _, p := range m.protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

func (m *member) matches(protocols []kmsg.JoinGroupRequestProtocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b kmsg.JoinGroupRequestProtocol) bool {
		return a.Name == b.Name && bytes.Equal(a.Metadata, b.Metadata)
	})
}

// byAll reports a protocol that all members know.
func (g *group) byAll(name string) bool {
	for _, m := range g.order {
		if !slices.ContainsFunc(m.protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return p.Name == name }) {
			return false
		}
	}
	return true
}

// supports reports whether someone with these protocols may be a member.
func (g *group) supports(protocolType string, protocols []kmsg.JoinGroupRequestProtocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType && slices.ContainsFunc(protocols, func(p kmsg.JoinGroupRequestProtocol) bool { return g.byAll(p.Name) })
}

// selectProtocol lets every member vote for its first protocol among those that all know;
// of equal votes the one voted for first wins.
func (g *group) selectProtocol() string {
	known := map[string]int{}
	for _, m := range g.order {
		for i, p := range m.protocols {
			if !slices.ContainsFunc(m.protocols[:i], func(o kmsg.JoinGroupRequestProtocol) bool { return o.Name == p.Name }) {
				known[p.Name]++
			}
		}
	}
	votes := map[string]int{}
	best := ""
	for _, m := range g.order {
		for _, p := range m.protocols {
			if known[p.Name] == len(g.order) {
				votes[p.Name]++
				break
			}
		}
	}
	for _, m := range g.order {
		for _, p := range m.protocols {
			if votes[p.Name] > votes[best] {
				best = p.Name
			}
		}
	}
	return best
}

// computeTopics notes what the members of a consumer group subscribe to, nil if unknown.
func (g *group) computeTopics() {
	g.topics = nil
	if g.protocolType != consumerProtocol {
		return
	}
	if len(g.order) == 0 {
		g.topics = map[string]bool{}
		return
	}
	if !g.hasProtocol {
		return
	}
	topics := map[string]bool{}
	for _, m := range g.order {
		ts, err := subscribedTopics(m.metadata(g.protocol))
		if err != nil {
			return
		}
		for _, t := range ts {
			topics[t] = true
		}
	}
	g.topics = topics
}

// subscribed reports a topic whose offsets are in use. A consumer group whose subscription
// cannot be read uses all.
func (g *group) subscribed(topic string) bool {
	return g.kind == Classic && g.protocolType == consumerProtocol && (g.topics == nil || g.topics[topic])
}

func (g *group) add(m *member) {
	if len(g.members) == 0 && g.leader == "" {
		g.leader = m.id
	}
	g.members[m.id] = m
	g.order = append(g.order, m)
	if m.instance != nil {
		g.static[*m.instance] = m
	}
}

func (g *group) drop(m *member) {
	delete(g.members, m.id)
	g.order = slices.DeleteFunc(g.order, func(o *member) bool { return o == m })
	if m.instance != nil && g.static[*m.instance] == m {
		delete(g.static, *m.instance)
	}
	delete(g.pendingSync, m.id)
	if g.leader == m.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

// check is validateMember: who speaks must be a member, under its newest id.
func (g *group) check(memberID string, instance *string) *kerr.Error {
	if instance != nil {
		s := g.static[*instance]
		if s == nil {
			return kerr.UnknownMemberID
		}
		if s.id != memberID {
			return kerr.FencedInstanceID
		}
		return nil
	}
	if g.members[memberID] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

func strp(s string) *string { return &s }

func nullable(s string, have bool) *string {
	if !have {
		return nil
	}
	return &s
}

// record is the group as GroupMetadata, with the given assignments or, if nil, those that
// the members have.
func (g *group) record(assignments map[string][]byte) runtime.Record {
	v := kmsg.GroupMetadataValue{
		Version: 3, ProtocolType: g.protocolType, Generation: g.generation, Protocol: nullable(g.protocol, g.hasProtocol),
		Leader: nullable(g.leader, g.leader != ""), CurrentStateTimestamp: g.since,
	}
	for _, m := range g.order {
		a := m.assignment
		if assignments != nil {
			a = assignments[m.id]
		}
		v.Members = append(v.Members, kmsg.GroupMetadataValueMember{
			MemberID: m.id, InstanceID: m.instance, ClientID: m.clientID, ClientHost: m.host,
			RebalanceTimeoutMillis: int32(m.rebalance.Milliseconds()), SessionTimeoutMillis: int32(m.session.Milliseconds()),
			Subscription: orEmpty(m.metadata(g.protocol)), Assignment: orEmpty(a),
		})
	}
	return runtime.Record{Key: groupKey(g.id), Value: v.AppendTo(nil)}
}

func orEmpty(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// load takes a stored classic group in.
func (g *group) load(v *kmsg.GroupMetadataValue) {
	g.kind, g.state, g.stored = Classic, Empty, true
	g.protocolType, g.generation, g.since, g.leader = v.ProtocolType, v.Generation, -1, ""
	g.protocol, g.hasProtocol = "", v.Protocol != nil
	if v.Protocol != nil {
		g.protocol = *v.Protocol
	}
	if v.Version >= 2 {
		g.since = v.CurrentStateTimestamp
	}
	g.members, g.order, g.static = map[string]*member{}, nil, map[string]*member{}
	for _, sm := range v.Members {
		if g.members[sm.MemberID] != nil {
			continue
		}
		m := &member{
			id: sm.MemberID, instance: sm.InstanceID, clientID: sm.ClientID, host: sm.ClientHost, assignment: sm.Assignment,
			session: time.Duration(sm.SessionTimeoutMillis) * time.Millisecond, rebalance: time.Duration(sm.RebalanceTimeoutMillis) * time.Millisecond,
		}
		if v.Version < 1 || sm.RebalanceTimeoutMillis < 0 {
			m.rebalance = m.session
		}
		if g.hasProtocol {
			p := kmsg.NewJoinGroupRequestProtocol()
			p.Name, p.Metadata = g.protocol, sm.Subscription
			m.protocols = []kmsg.JoinGroupRequestProtocol{p}
		}
		g.add(m)
		g.state = Stable
	}
	if v.Leader != nil {
		g.leader = *v.Leader
	}
	g.computeTopics()
}
