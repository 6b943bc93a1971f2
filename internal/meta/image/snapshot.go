package image

import (
	"iter"
	"maps"
	"slices"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
)

// Snapshot gives the records that rebuild the image, in Kafka's order
// (metadata-records.md §2). Encode them with metarec.VersionFor the image's
// MetadataVersion. An image inside a metadata transaction gives its state before it.
func (i *Image) Snapshot() iter.Seq[metarec.Record] {
	return func(yield func(metarec.Record) bool) {
		_ = i.snapshotFeatures(yield) && i.snapshotNodes(yield) && i.snapshotTopics(yield) &&
			i.snapshotConfigs(yield) && i.snapshotQuotas(yield) &&
			i.snapshotProducerIDs(yield) && i.snapshotSecurity(yield)
	}
}

func (i *Image) snapshotFeatures(yield func(metarec.Record) bool) bool {
	if mv := i.MetadataVersion(); mv > 0 && !yield(&metarec.FeatureLevel{Name: feature.MetadataVersion, FeatureLevel: mv}) {
		return false
	}
	for _, name := range slices.Sorted(maps.Keys(i.features)) {
		if name != feature.MetadataVersion && !yield(&metarec.FeatureLevel{Name: name, FeatureLevel: i.features[name]}) {
			return false
		}
	}
	return true
}

func (i *Image) snapshotNodes(yield func(metarec.Record) bool) bool {
	for _, b := range i.brokers {
		if !yield(b.Record(i.MetadataVersion())) {
			return false
		}
	}
	if i.MetadataVersion() < feature.ControllerRegistration {
		return true
	}
	for _, c := range i.controllers {
		if !yield(&metarec.RegisterController{
			ControllerID: c.ID, IncarnationID: c.Incarnation, ZkMigrationReady: c.ZkMigrationReady,
			EndPoints: c.Endpoints, Features: c.Features,
		}) {
			return false
		}
	}
	return true
}

// Record is the registration as a record.
func (b *Broker) Record(metadata int16) *metarec.RegisterBroker {
	r := &metarec.RegisterBroker{
		BrokerID: b.ID, IncarnationID: b.Incarnation, BrokerEpoch: b.Epoch, EndPoints: b.Endpoints, Features: b.Features,
		Rack: b.Rack, Fenced: b.Fenced, InControlledShutdown: b.ShuttingDown, LogDirs: b.LogDirs,
	}
	if metadata >= feature.Cordoning {
		r.CordonedLogDirs = append([]ids.UUID{}, b.CordonedDirs...) // present though empty, as Kafka writes it
	}
	return r
}

// Record is the partition's whole state as a record.
func (p *Partition) Record(t *Topic, partition int32) *metarec.Partition {
	r := &metarec.Partition{
		PartitionID: partition, TopicID: t.ID, Replicas: p.Replicas, ISR: p.ISR, RemovingReplicas: p.Removing, AddingReplicas: p.Adding,
		Leader: p.Leader, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Directories: p.Directories,
		EligibleLeaderReplicas: p.ELR, LastKnownElr: p.LastKnownELR,
	}
	if p.Recovering {
		r.LeaderRecoveryState = 1
	}
	return r
}

func (i *Image) snapshotTopics(yield func(metarec.Record) bool) bool {
	for t := range i.Topics() {
		if !yield(&metarec.Topic{Name: t.Name, TopicID: t.ID}) {
			return false
		}
		for n, p := range t.Partitions {
			if !yield(p.Record(t, int32(n))) {
				return false
			}
		}
	}
	return true
}

func (i *Image) snapshotConfigs(yield func(metarec.Record) bool) bool {
	for key, m := range i.Configs() {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			value := m[name]
			if !yield(&metarec.Config{ResourceType: key.Type, ResourceName: key.Name, Name: name, Value: &value}) {
				return false
			}
		}
	}
	return true
}

func (i *Image) snapshotQuotas(yield func(metarec.Record) bool) bool {
	for q := range i.Quotas() {
		for _, key := range slices.Sorted(maps.Keys(q.Values)) {
			if !yield(&metarec.ClientQuota{Entity: q.Entity, Key: key, Value: q.Values[key]}) {
				return false
			}
		}
	}
	return true
}

// snapshotProducerIDs does not name the broker that got the last block; nor does Kafka.
func (i *Image) snapshotProducerIDs(yield func(metarec.Record) bool) bool {
	return i.producerID == 0 || yield(&metarec.ProducerIDs{BrokerID: -1, BrokerEpoch: -1, NextProducerID: i.producerID})
}

func (i *Image) snapshotSecurity(yield func(metarec.Record) bool) bool {
	for a := range i.ACLs() {
		if !yield(a) {
			return false
		}
	}
	for c := range i.Scrams() {
		if !yield(c) {
			return false
		}
	}
	for t := range i.Tokens() {
		if !yield(t) {
			return false
		}
	}
	return true
}
