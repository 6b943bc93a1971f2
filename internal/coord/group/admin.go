package group

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
)

const dead = "Dead"

// Describe answers one group of DescribeGroups. Only classic groups are told of.
func (s *Shard) Describe(id string, version int16) kmsg.DescribeGroupsResponseGroup {
	g := s.groups[id]
	if g == nil || g.kind != Classic {
		return notThere(id, version, g != nil)
	}
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group, out.State, out.ProtocolType = id, g.state.String(), g.protocolType
	if g.state == Stable {
		out.Protocol = g.protocol
	}
	for _, m := range g.order {
		d := kmsg.NewDescribeGroupsResponseGroupMember()
		d.MemberID, d.InstanceID, d.ClientID, d.ClientHost = m.id, m.instance, m.clientID, m.host
		d.ProtocolMetadata, d.MemberAssignment = []byte{}, orEmpty(m.assignment)
		if g.state == Stable {
			d.ProtocolMetadata = orEmpty(m.metadata(g.protocol))
		}
		out.Members = append(out.Members, d)
	}
	return out
}

func notThere(id string, version int16, otherKind bool) kmsg.DescribeGroupsResponseGroup {
	out := kmsg.NewDescribeGroupsResponseGroup()
	out.Group, out.State = id, dead
	if version >= 6 {
		out.ErrorCode = kerr.GroupIDNotFound.Code
		out.ErrorMessage = strp(fmt.Sprintf("Group %s not found.", id))
		if otherKind {
			out.ErrorMessage = strp(fmt.Sprintf("Group %s is not a classic group.", id))
		}
	}
	return out
}

// List gives the groups that pass the filters; no filter lets all pass.
func (s *Shard) List(states, types []string, now time.Time) (out []kmsg.ListGroupsResponseGroup) {
	match := func(filter []string, v string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(strings.TrimSpace(f), v) })
	}
	for _, g := range s.groups {
		l := kmsg.NewListGroupsResponseGroup()
		l.Group, l.GroupType, l.GroupState, l.ProtocolType = g.id, g.kind.String(), s.stateName(g, now), g.protocolType
		if g.kind != Classic {
			l.ProtocolType = g.kind.String()
		}
		if match(states, l.GroupState) && match(types, l.GroupType) {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b kmsg.ListGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	return out
}

func (s *Shard) stateName(g *group, now time.Time) string {
	switch {
	case g.kind == Classic:
		return g.state.String()
	case s.inUse(g, now):
		return Stable.String()
	}
	return Empty.String()
}

// Delete removes a group with all that it has.
func (s *Shard) Delete(id string, answer func(*kerr.Error, string), now time.Time) []runtime.Result {
	g := s.groups[id]
	switch {
	case g == nil:
		answer(kerr.GroupIDNotFound, fmt.Sprintf("Group %s not found.", id))
		return nil
	case g.kind == Share:
		// Its state in __share_group_state would be left behind.
		answer(kerr.UnsupportedVersion, fmt.Sprintf("Group %s is a share group, which this broker does not serve.", id))
		return nil
	case g.kind == Classic && g.state != Empty || s.inUse(g, now):
		answer(kerr.NonEmptyGroup, fmt.Sprintf("The group %s is not empty.", id))
		return nil
	}
	res := runtime.Result{Done: func(_ time.Time, err error) []runtime.Result {
		if err != nil {
			answer(runtime.ClientError(err), "")
		} else {
			answer(nil, "")
		}
		return nil
	}}
	var undo []func()
	for _, tp := range s.offsetsOf(g) {
		res.Records = append(res.Records, runtime.Record{Key: offsetKey(id, tp)})
		undo = append(undo, s.forget(g, tp))
	}
	if g.kind == Classic {
		res.Records = append(res.Records, runtime.Record{Key: groupKey(id)})
	}
	res.Records = append(res.Records, g.foreignTombstones()...)
	for _, t := range g.pending {
		t.off()
	}
	undo = append(undo, s.bury(g))
	res.Undo = backwards(undo)
	return []runtime.Result{res}
}

// offsetsOf lists a group's partitions with offsets, also those of open transactions.
func (s *Shard) offsetsOf(g *group) (tps []topicPartition) {
	all := map[topicPartition]bool{}
	for tp := range g.offsets {
		all[tp] = true
	}
	for _, txn := range s.open {
		for k := range txn {
			if k.group == g.id {
				all[k.tp] = true
			}
		}
	}
	for tp := range all {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, func(a, b topicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return tps
}

// foreignTombstones remove all records that another protocol left of the group.
func (g *group) foreignTombstones() (out []runtime.Record) {
	keys := make([]string, 0, len(g.keys))
	for k := range g.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return cmp.Or(cmp.Compare(slices.Index(tombstoneOrder, g.keys[a]), slices.Index(tombstoneOrder, g.keys[b])), cmp.Compare(a, b))
	})
	for _, k := range keys {
		out = append(out, runtime.Record{Key: []byte(k)})
	}
	return out
}

// convert turns a group of another protocol that nobody uses into an empty classic one,
// keeping its offsets.
func (s *Shard) convert(g *group, _ time.Time) []runtime.Result {
	records := g.foreignTombstones()
	kind, keys, groupKeys, memberKeys := g.kind, g.keys, g.groupKeys, g.memberKeys
	g.kind, g.keys, g.groupKeys, g.memberKeys = Classic, map[string]int16{}, 0, 0
	return []runtime.Result{{Records: records, Undo: func() {
		g.kind, g.keys, g.groupKeys, g.memberKeys = kind, keys, groupKeys, memberKeys
	}}}
}

// TopicsDeleted drops the offsets of topics that are gone.
func (s *Shard) TopicsDeleted(topics map[string]bool, _ time.Time) []runtime.Result {
	res := runtime.Result{}
	var undo []func()
	for _, g := range s.groups {
		for _, tp := range s.offsetsOf(g) {
			if topics[tp.Topic] {
				res.Records = append(res.Records, runtime.Record{Key: offsetKey(g.id, tp)})
				undo = append(undo, s.forget(g, tp))
			}
		}
	}
	if len(res.Records) == 0 {
		return nil
	}
	res.Undo = backwards(undo)
	return []runtime.Result{res}
}
