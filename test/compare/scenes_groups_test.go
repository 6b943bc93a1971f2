package compare

import (
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the group coordinator answers to classic groups.
func init() {
	sweep("find-coordinator", 0, 6, findCoordinatorVersion)
	sweep("join", 0, 9, joinVersion)
	sweep("sync", 0, 5, syncVersion)
	sweep("heartbeat", 0, 4, heartbeatVersion)
	sweep("leave", 0, 5, leaveVersion)
	sweep("offset-commit", 2, 10, offsetCommitVersion)
	sweep("offset-fetch", 1, 10, offsetFetchVersion)
	sweep("offset-delete", 0, 0, offsetDeleteVersion)
	sweep("describe-groups", 0, 6, describeGroupsVersion)
	sweep("list-groups", 0, 5, listGroupsVersion)
	sweep("delete-groups", 0, 3, deleteGroupsVersion)
	add("rebalance", rebalance)
	add("group-without-a-name", func(s *script) {
		t := s.topic("t", 1)
		s.ask("describe", 6, describeGroups(""))
		s.ask("commit", 9, s.commit("", -1, "", t, 0, 3))
		s.ask("committed", 9, s.committed("", t, 0))
		s.ask("describe", 6, describeGroups(""))
		s.ask("delete", 2, deleteGroups(""))
		s.ask("delete", 2, deleteGroups(""))
	})
	sweep("static-member", 5, 9, staticMember)
	add("group-protocols", groupProtocols)
	add("leader-leaves", leaderLeaves)
	add("garbage-in-groups", garbageInGroups)
}

func findCoordinatorVersion(s *script, v int16) {
	s.ask("one group", v, findCoordinator(s.own("g")))
	s.ask("empty key", v, findCoordinator(""))
	if v >= 4 {
		s.ask("three", v, findCoordinator(s.own("a"), s.own("b"), s.own("a")))
		s.ask("none", v, findCoordinator())
	}
	r := findCoordinator(s.own("g"))
	r.CoordinatorType = 9
	s.ask("no such kind", v, r)
}

// bothIDs joins as a version wants it: at once, or with the id that the first answer gave.
func bothIDs(s *script, label string, v int16, r *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	j := s.ask(label, v, r).(*kmsg.JoinGroupResponse)
	if j.ErrorCode == 79 {
		r.MemberID = j.MemberID
		j = s.ask(label+", with its id", v, r).(*kmsg.JoinGroupResponse)
	}
	return j
}

func joinVersion(s *script, v int16) {
	g := s.own("g")
	j := bothIDs(s, "joins", v, join(g, "", "range", "roundrobin"))
	s.ask("joins again", v, join(g, j.MemberID, "range", "roundrobin"))
	s.ask("a stranger", v, join(g, "stranger"))
	s.ask("a stranger to a new group", v, join(s.own("h"), "stranger"))
	other := join(g, "")
	other.ProtocolType = "connect"
	s.ask("another protocol type", v, other)
	s.ask("no common protocol", v, join(g, "", "sticky"))
	none := join(g, "")
	none.Protocols = nil
	s.ask("no protocol", v, none)
	untyped := join(s.own("i"), "")
	untyped.ProtocolType = ""
	s.ask("no protocol type", v, untyped)
	for _, ms := range []int32{5000, 5999, 1800001, 0, -1} {
		r := join(s.own("t"), "")
		r.SessionTimeoutMillis = ms
		s.ask(fmt.Sprint("session time-out ", ms), v, r)
	}
	s.ask("empty group", v, join("", ""))
	s.ask("empty group, stranger", v, join("", "x"))
	s.ask("describe", 5, describeGroups(g))
}

func syncVersion(s *script, v int16) {
	g := s.own("g")
	j := bothIDs(s, "joins", 5, join(g, ""))
	s.ask("wrong generation", v, syncGroup(g, j.Generation+1, j.MemberID))
	s.ask("a stranger", v, syncGroup(g, j.Generation, "stranger"))
	s.ask("no such group", v, syncGroup(s.own("h"), 1, "stranger"))
	s.ask("empty group", v, syncGroup("", 1, "stranger"))
	wrongProtocol := syncGroup(g, j.Generation, j.MemberID)
	wrongProtocol.Protocol = str("sticky")
	s.ask("another protocol", v, wrongProtocol)
	wrongType := syncGroup(g, j.Generation, j.MemberID)
	wrongType.ProtocolType = str("connect")
	s.ask("another type", v, wrongType)
	nothing := syncGroup(g, j.Generation, j.MemberID, j.MemberID, "all", "somebody else", "none")
	nothing.Protocol, nothing.ProtocolType = nil, nil
	s.ask("assigns", v, nothing)
	s.ask("asks again", v, syncGroup(g, j.Generation, j.MemberID))
	s.ask("describe", 5, describeGroups(g))
}

func heartbeatVersion(s *script, v int16) {
	g := s.own("g")
	m, gen := s.member("", g)
	s.ask("alive", v, heartbeat(g, gen, m))
	s.ask("older generation", v, heartbeat(g, gen-1, m))
	s.ask("newer generation", v, heartbeat(g, gen+1, m))
	s.ask("a stranger", v, heartbeat(g, gen, "stranger"))
	s.ask("no member", v, heartbeat(g, gen, ""))
	s.ask("no such group", v, heartbeat(s.own("h"), 1, "x"))
	s.ask("empty group", v, heartbeat("", 1, "x"))
	if v >= 3 {
		r := heartbeat(g, gen, m)
		r.InstanceID = str("not static")
		s.ask("an instance id of nobody", v, r)
	}
}

func leaveVersion(s *script, v int16) {
	g := s.own("g")
	m, gen := s.member("", g)
	s.ask("a stranger", v, leave(g, "stranger"))
	s.ask("no such group", v, leave(s.own("h"), "x"))
	s.ask("empty group", v, leave("", "x"))
	if v >= 3 {
		s.ask("two, one a stranger", v, leave(g, m, "stranger"))
		s.ask("nobody", v, leave(g))
		r := leave(g, "")
		r.Members[0].InstanceID = str("nobody")
		s.ask("an instance id of nobody", v, r)
	} else {
		s.ask("leaves", v, leave(g, m))
	}
	s.ask("leaves again", v, leave(g, m))
	s.ask("heartbeat after that", 4, heartbeat(g, gen, m))
	s.ask("describe", 5, describeGroups(g))
}

func offsetCommitVersion(s *script, v int16) {
	t, u := s.topic("t", 3), s.topic("u", 1)
	g, h := s.own("g"), s.own("h")
	s.ask("without a member", v, s.commit(h, -1, "", t, 0, 11))
	s.ask("two topics", v, s.commitAlso(s.commit(h, -1, "", t, 1, 12), u, 0, 13))
	s.ask("no such partition", v, s.commitAlso(s.commit(h, -1, "", t, 9, 1), u, 0, 14))
	s.ids[s.own("nowhere")] = [16]byte{5, 5}
	s.ask("no such topic", v, s.commitAlso(s.commit(h, -1, "", s.own("nowhere"), 0, 1), t, 2, 15))
	s.ask("a negative offset", v, s.commit(h, -1, "", t, 0, -7))
	m, gen := s.member("", g, t)
	s.ask("by the member", v, s.commit(g, gen, m, t, 0, 21))
	s.ask("older generation", v, s.commit(g, gen-1, m, t, 0, 22))
	s.ask("newer generation", v, s.commit(g, gen+1, m, t, 0, 22))
	s.ask("a stranger", v, s.commit(g, gen, "stranger", t, 0, 22))
	s.ask("nobody in a live group", v, s.commit(g, -1, "", t, 0, 22))
	s.ask("a generation of no group", v, s.commit(s.own("i"), 3, "x", t, 0, 22))
	s.ask("a member of no group", v, s.commit(s.own("i"), -1, "x", t, 0, 22))
	long := s.commit(h, -1, "", t, 0, 30)
	long.Topics[0].Partitions[0].Metadata = str(strings.Repeat("m", 4097))
	s.ask("long metadata", v, long)
	long.Topics[0].Partitions[0].Metadata = nil
	s.ask("null metadata", v, long)
	epoch := s.commit(h, -1, "", t, 1, 31)
	epoch.Topics[0].Partitions[0].LeaderEpoch = 4
	s.ask("with an epoch", v, epoch)
	if v >= 7 {
		r := s.commit(g, gen, m, t, 0, 5)
		r.InstanceID = str("nobody")
		s.ask("an instance id of nobody", v, r)
	}
	none := s.commit(h, -1, "", t, 0, 1)
	none.Topics = nil
	s.ask("nothing", v, none)
	s.ask("of h", 8, s.committed(h, t, 0, 1, 2))
	s.ask("of g", 8, s.committed(g, t, 0, 1, 2))
}

func offsetFetchVersion(s *script, v int16) {
	t, u := s.topic("t", 3), s.topic("u", 1)
	g := s.own("g")
	s.quiet(6, s.commitAlso(s.commit(g, -1, "", t, 1, 42), u, 0, 7))
	s.ask("one", v, s.committed(g, t, 1))
	s.ask("some without", v, s.committed(g, t, 0, 1, 2))
	s.ask("no such partition", v, s.committed(g, t, 8))
	s.ids[s.own("nowhere")] = [16]byte{5, 5}
	s.ask("no such topic", v, s.committed(g, s.own("nowhere"), 0))
	s.ask("no such group", v, s.committed(s.own("h"), t, 0))
	s.ask("empty group", v, s.committed("", t, 0))
	all := s.committed(g, "")
	all.Topics, all.Groups[0].Topics = nil, nil
	s.ask("all", v, all)
	if v >= 2 {
		all := s.committed(s.own("h"), "")
		s.ask("all of no group", v, all)
	}
	none := s.committed(g, "")
	none.Topics, none.Groups[0].Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
	s.ask("none", v, none)
	if v >= 7 {
		r := s.committed(g, t, 1)
		r.RequireStable = true
		s.ask("stable ones", v, r)
	}
	if v >= 8 {
		two := s.committed(g, t, 1)
		two.Groups = append(two.Groups, s.committed(s.own("h"), u, 0).Groups...)
		s.ask("two groups", v, two)
		two.Groups = nil
		s.ask("no group", v, two)
	}
	if v >= 9 {
		m, gen := s.member("", s.own("live"), t)
		r := s.committed(s.own("live"), t, 0)
		r.Groups[0].MemberID, r.Groups[0].MemberEpoch = str(m), gen
		s.ask("by a classic member", v, r)
		r.Groups[0].MemberEpoch++
		s.ask("by a classic member of another epoch", v, r)
	}
}

func offsetDeleteVersion(s *script, v int16) {
	t, u := s.topic("t", 2), s.topic("u", 1)
	g, h := s.own("g"), s.own("h")
	m, gen := s.member("", g, t)
	s.quiet(6, s.commitAlso(s.commit(g, gen, m, t, 0, 1), u, 0, 1))
	s.ask("subscribed", v, offsetDelete(g, t, 0))
	s.ask("not subscribed", v, offsetDelete(g, u, 0))
	s.quiet(6, s.commit(h, -1, "", t, 0, 1))
	s.ask("no members", v, offsetDelete(h, t, 0, 1, 9))
	s.ask("no such topic", v, offsetDelete(h, s.own("nowhere"), 0))
	s.ask("no such group", v, offsetDelete(s.own("i"), t, 0))
	s.ask("empty group", v, offsetDelete("", t, 0))
	s.ask("left of g", 8, s.committed(g, u, 0))
	s.ask("left of h", 8, s.committed(h, t, 0))
}

func describeGroupsVersion(s *script, v int16) {
	t := s.topic("t", 1)
	g, h := s.own("g"), s.own("h")
	s.member("member", g, t)
	s.quiet(6, s.commit(h, -1, "", t, 0, 1))
	for _, r := range []*kmsg.DescribeGroupsRequest{describeGroups(g), describeGroups(h), describeGroups(s.own("nobody")), describeGroups(g, h, s.own("nobody")), describeGroups()} {
		s.ask(fmt.Sprint(strings.Join(r.Groups, " and "), "."), v, r)
	}
	r := describeGroups(g)
	r.IncludeAuthorizedOperations = true
	s.ask("with operations", v, r)
}

func listGroupsVersion(s *script, v int16) {
	t := s.topic("t", 1)
	s.member("member", s.own("stable"), t)
	s.quiet(6, s.commit(s.own("empty"), -1, "", t, 0, 1))
	r := kmsg.NewPtrListGroupsRequest()
	s.ask("all", v, r)
	if v >= 4 {
		for _, state := range []string{"Stable", "Empty", "stable", "Dead", "Nonsense", "PreparingRebalance"} {
			r.StatesFilter = []string{state}
			s.ask("state "+state, v, r)
		}
		r.StatesFilter = []string{"Stable", "Empty"}
		s.ask("two states", v, r)
		r.StatesFilter = nil
	}
	if v >= 5 {
		for _, kind := range []string{"classic", "Classic", "consumer", "share", "streams", "nonsense"} {
			r.TypesFilter = []string{kind}
			s.ask("type "+kind, v, r)
		}
	}
}

func deleteGroupsVersion(s *script, v int16) {
	t := s.topic("t", 1)
	g, h := s.own("g"), s.own("h")
	s.member("member", g, t)
	s.quiet(6, s.commit(h, -1, "", t, 0, 1))
	s.ask("live", v, deleteGroups(g))
	s.ask("empty, unknown and live", v, deleteGroups(h, s.own("nobody"), g))
	s.ask("again", v, deleteGroups(h))
	s.ask("none", v, deleteGroups())
	s.ask("twice in one", v, deleteGroups(s.own("x"), s.own("x")))
	s.ask("its offsets", 8, s.committed(h, t, 0))
}

func rebalance(s *script) {
	g := s.own("g")
	m1, gen := s.member("first", g)
	r := join(g, "")
	r.MemberID = s.quietAt("second", 5, r).(*kmsg.JoinGroupResponse).MemberID
	m2 := r.MemberID
	j2 := s.begin("second", "a second joins", 9, r)
	j2.waits(moment)
	s.askAt("first", "the first hears of it", 4, heartbeat(g, gen, m1))
	s.askAt("first", "and may not sync", 5, syncGroup(g, gen, m1))
	s.ask("describe", 5, describeGroups(g))
	j := s.askAt("first", "joins again", 9, join(g, m1)).(*kmsg.JoinGroupResponse)
	j2.end()
	y2 := s.begin("second", "the second syncs", 5, syncGroup(g, j.Generation, m2))
	y2.waits(moment)
	s.askAt("first", "alive meanwhile", 4, heartbeat(g, j.Generation, m1))
	s.ask("describe", 5, describeGroups(g))
	s.askAt("first", "the leader assigns", 5, syncGroup(g, j.Generation, m1, m1, "half", m2, "other half"))
	y2.end()
	s.ask("describe", 6, describeGroups(g))
	s.askAt("second", "the second leaves", 5, leave(g, m2))
	s.askAt("first", "the first hears of it", 4, heartbeat(g, j.Generation, m1))
	j = s.askAt("first", "is alone", 9, join(g, m1)).(*kmsg.JoinGroupResponse)
	s.askAt("first", "syncs", 5, syncGroup(g, j.Generation, m1, m1, "whole"))
	s.askAt("first", "changes its protocols", 9, join(g, m1, "range", "sticky"))
}

func staticMember(s *script, v int16) {
	g := s.own("g")
	r := join(g, "")
	r.InstanceID = str("pod-0")
	j := s.ask("joins", v, r).(*kmsg.JoinGroupResponse)
	y := syncGroup(g, j.Generation, j.MemberID, j.MemberID, "mine")
	y.InstanceID = str("pod-0")
	s.ask("syncs", 3, y)
	again := s.ask("restarts", v, r).(*kmsg.JoinGroupResponse)
	y = syncGroup(g, again.Generation, again.MemberID)
	y.InstanceID = str("pod-0")
	s.ask("syncs after that", 3, y)
	h := heartbeat(g, j.Generation, j.MemberID)
	h.InstanceID = str("pod-0")
	s.ask("the old process", 3, h)
	h.MemberID = again.MemberID
	s.ask("the new one", 3, h)
	h.InstanceID = str("pod-1")
	s.ask("another instance", 3, h)
	old := s.commit(g, j.Generation, j.MemberID, s.topic("t", 1), 0, 5)
	old.InstanceID = str("pod-0")
	s.ask("the old one commits", 7, old)
	wrong := join(g, j.MemberID)
	wrong.InstanceID = str("pod-0")
	s.ask("the old one joins", v, wrong)
	s.ask("describe", 5, describeGroups(g))
	l := leave(g, "")
	l.Members[0].InstanceID = str("pod-0")
	s.ask("is removed", 4, l)
	s.ask("describe", 5, describeGroups(g))
}

func groupProtocols(s *script) {
	g := s.own("g")
	r := join(g, "", "a", "b")
	r.MemberID = s.quietAt("first", 5, r).(*kmsg.JoinGroupResponse).MemberID
	one := s.askAt("first", "prefers a", 5, r).(*kmsg.JoinGroupResponse)
	y := syncGroup(g, one.Generation, one.MemberID, one.MemberID, "x")
	y.Protocol = str("a")
	s.askAt("first", "syncs", 5, y)
	r2 := join(g, "", "b", "c")
	r2.MemberID = s.quietAt("second", 5, r2).(*kmsg.JoinGroupResponse).MemberID
	p := s.begin("second", "knows b only", 5, r2)
	p.waits(moment)
	s.askAt("first", "again", 5, r)
	p.end()
	s.ask("describe", 5, describeGroups(g))
}

func leaderLeaves(s *script) {
	g := s.own("g")
	m1, gen := s.member("first", g)
	r := join(g, "")
	r.MemberID = s.quietAt("second", 5, r).(*kmsg.JoinGroupResponse).MemberID
	p := s.begin("second", "joins", 5, r)
	p.waits(moment)
	s.askAt("first", "the leader leaves", 4, leave(g, m1))
	j := p.end().(*kmsg.JoinGroupResponse)
	s.note("a new generation", j.Generation > gen)
	s.askAt("second", "syncs", 5, syncGroup(g, j.Generation, j.MemberID, j.MemberID, "all"))
	s.ask("delete while live", 2, deleteGroups(g))
	s.askAt("second", "leaves", 4, leave(g, j.MemberID))
	s.ask("describe", 6, describeGroups(g))
	s.ask("delete", 2, deleteGroups(g))
	s.ask("describe", 6, describeGroups(g))
}

func garbageInGroups(s *script) {
	t := s.topic("t", 1)
	g := s.own("g")
	r := join(g, "")
	r.Protocols[0].Metadata = []byte{1, 2, 3}
	r.MemberID = s.quiet(5, r).(*kmsg.JoinGroupResponse).MemberID
	j := s.ask("joins with junk", 5, r).(*kmsg.JoinGroupResponse)
	s.ask("syncs with junk", 5, syncGroup(g, j.Generation, j.MemberID, j.MemberID, "\x00\xff"))
	s.ask("describe", 5, describeGroups(g))
	s.quiet(6, s.commit(g, j.Generation, j.MemberID, t, 0, 3))
	s.ask("deleting an offset", 0, offsetDelete(g, t, 0))
}
