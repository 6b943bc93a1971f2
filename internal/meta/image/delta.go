package image

import (
	"maps"
	"reflect"
	"slices"

	"runnel/internal/kit/ids"
)

// Delta is what changed between two images. A nil map means no change of that kind.
type Delta struct {
	Topics      map[ids.UUID]*TopicDelta
	Brokers     map[int32]BrokerDelta
	Controllers map[int32]struct{}
	Configs     map[Resource]struct{}
	Features    map[string]struct{}
	Quotas      map[string]struct{} // by QuotaKey
	ACLs        map[ids.UUID]struct{}
	Scram       map[ScramKey]struct{}
	Tokens      map[string]struct{}
	ProducerIDs bool
}

// TopicDelta is the change of one topic. Old is nil if it was created, New if it was
// deleted; Changed lists, in order, partitions that are new or differ.
type TopicDelta struct {
	Old, New *Topic
	Changed  []int32
}

// BrokerDelta is the change of one registration; nil for none.
type BrokerDelta struct{ Old, New *Broker }

// Created and Deleted report a topic that came or went.
func (d *TopicDelta) Created() bool { return d.Old == nil }
func (d *TopicDelta) Deleted() bool { return d.New == nil }

// IsEmpty reports that nothing changed.
func (d *Delta) IsEmpty() bool {
	return len(d.Topics) == 0 && len(d.Brokers) == 0 && len(d.Controllers) == 0 && len(d.Configs) == 0 &&
		len(d.Features) == 0 && len(d.Quotas) == 0 && len(d.ACLs) == 0 && len(d.Scram) == 0 &&
		len(d.Tokens) == 0 && !d.ProducerIDs
}

func mark[K comparable](m *map[K]struct{}, k K) {
	if *m == nil {
		*m = map[K]struct{}{}
	}
	(*m)[k] = struct{}{}
}

func equalPartition(a, b *Partition) bool {
	if a == b {
		return true
	}
	return a != nil && b != nil && a.Leader == b.Leader && a.LeaderEpoch == b.LeaderEpoch &&
		a.PartitionEpoch == b.PartitionEpoch && a.Recovering == b.Recovering &&
		slices.Equal(a.Replicas, b.Replicas) && slices.Equal(a.ISR, b.ISR) &&
		slices.Equal(a.Removing, b.Removing) && slices.Equal(a.Adding, b.Adding) &&
		slices.Equal(a.ELR, b.ELR) && slices.Equal(a.LastKnownELR, b.LastKnownELR) &&
		slices.Equal(a.Directories, b.Directories)
}

func changedPartitions(old, new *Topic) []int32 {
	var changed []int32
	for p := range new.Partitions {
		if old == nil || !equalPartition(old.Partition(int32(p)), new.Partitions[p]) {
			changed = append(changed, int32(p))
		}
	}
	return changed
}

// FromSnapshot is the difference between an image and another that was loaded from a
// snapshot and shares nothing with it: what the new one lacks is gone (KAFKA-14618).
func FromSnapshot(old, new *Image) *Delta {
	d := &Delta{ProducerIDs: old.NextProducerID() != new.NextProducerID()}
	diffTopics(d, old, new)
	for _, b := range old.brokers {
		if n := new.Broker(b.ID); n == nil || !reflect.DeepEqual(b, n) {
			d.broker(b.ID, b, n)
		}
	}
	for _, b := range new.brokers {
		if old.Broker(b.ID) == nil {
			d.broker(b.ID, nil, b)
		}
	}
	for _, c := range old.controllers {
		if n := new.Controller(c.ID); n == nil || !reflect.DeepEqual(c, n) {
			mark(&d.Controllers, c.ID)
		}
	}
	for _, c := range new.controllers {
		if old.Controller(c.ID) == nil {
			mark(&d.Controllers, c.ID)
		}
	}
	d.Configs = diffMaps(maps.Collect(old.Configs()), maps.Collect(new.Configs()))
	d.Features = diffMaps(old.features, new.features)
	d.Quotas = diffMaps(collect(old.quotas), collect(new.quotas))
	d.Scram = diffMaps(collect(old.scram), collect(new.scram))
	d.Tokens = diffMaps(collect(old.tokens), collect(new.tokens))
	for a := range old.ACLs() {
		if n := new.ACL(a.ID); n == nil || *a != *n {
			mark(&d.ACLs, a.ID)
		}
	}
	for a := range new.ACLs() {
		if old.ACL(a.ID) == nil {
			mark(&d.ACLs, a.ID)
		}
	}
	return d
}

func diffTopics(d *Delta, old, new *Image) {
	for t := range old.Topics() {
		n := new.TopicByID(t.ID)
		if n == nil {
			d.topic(t.ID).Old = t
			continue
		}
		if changed := changedPartitions(t, n); len(changed) > 0 || len(t.Partitions) != len(n.Partitions) {
			*d.topic(t.ID) = TopicDelta{Old: t, New: n, Changed: changed}
		}
	}
	for t := range new.Topics() {
		if old.TopicByID(t.ID) == nil {
			*d.topic(t.ID) = TopicDelta{New: t, Changed: changedPartitions(nil, t)}
		}
	}
}

func (d *Delta) topic(id ids.UUID) *TopicDelta {
	if d.Topics == nil {
		d.Topics = map[ids.UUID]*TopicDelta{}
	}
	t := d.Topics[id]
	if t == nil {
		t = &TopicDelta{}
		d.Topics[id] = t
	}
	return t
}

func (d *Delta) broker(id int32, old, new *Broker) {
	if d.Brokers == nil {
		d.Brokers = map[int32]BrokerDelta{}
	}
	if was, ok := d.Brokers[id]; ok {
		old = was.Old
	}
	d.Brokers[id] = BrokerDelta{Old: old, New: new}
}

func diffMaps[K comparable, V any](old, new map[K]V) map[K]struct{} {
	var d map[K]struct{}
	for k, v := range old {
		if n, ok := new[k]; !ok || !reflect.DeepEqual(v, n) {
			mark(&d, k)
		}
	}
	for k := range new {
		if _, ok := old[k]; !ok {
			mark(&d, k)
		}
	}
	return d
}
