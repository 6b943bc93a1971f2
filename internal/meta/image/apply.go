package image

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/benbjohnson/immutable"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
)

// Apply gives the image after records, whose last one has the offset lastOffset; the
// records stand one after another in the log (metadata-records.md §3.1). Records of an open metadata
// transaction are withheld until it ends. On an error the old image stays true.
func (i *Image) Apply(records []metarec.Record, lastOffset int64, epoch int32) (*Image, *Delta, error) {
	w := newWork(i)
	first := lastOffset - int64(len(records)) + 1
	for n, r := range records {
		if err := w.feed(r, first+int64(n)); err != nil {
			return nil, nil, fmt.Errorf("metadata record at offset %d: %s: %w", first+int64(n), metarec.Name(r.Type()), err)
		}
	}
	w.finish(lastOffset, epoch)
	return w.Image, w.delta, nil
}

// Load builds an image from the records of a snapshot that ends at the record lastOffset.
func Load(records iter.Seq[metarec.Record], lastOffset int64, epoch int32) (*Image, error) {
	w := newWork(empty)
	for r := range records {
		if err := w.feed(r, lastOffset); err != nil {
			return nil, fmt.Errorf("metadata snapshot at offset %d: %s: %w", lastOffset, metarec.Name(r.Type()), err)
		}
	}
	if w.withheld != nil {
		return nil, fmt.Errorf("metadata snapshot at offset %d ends inside a transaction", lastOffset)
	}
	w.finish(lastOffset, epoch)
	return w.Image, nil
}

// work is an image in the making. Topics, config maps and the slices and maps of the
// image are copied when first touched and owned from then on; touched topics are put into the
// persistent maps once, at the end.
type work struct {
	*Image
	old   *Image
	delta *Delta

	topics      map[ids.UUID]*Topic // owned; nil for removed
	names       map[string]*Topic   // of owned and removed topics
	ownConfigs  map[Resource]bool
	ownBrokers  bool
	ownControls bool
	ownFeatures bool
}

func newWork(i *Image) *work {
	next := *i
	return &work{Image: &next, old: i, delta: &Delta{}, topics: map[ids.UUID]*Topic{}, names: map[string]*Topic{}, ownConfigs: map[Resource]bool{}}
}

func (w *work) finish(lastOffset int64, epoch int32) {
	w.offset, w.epoch = lastOffset, epoch
	for id, t := range w.topics {
		old := w.old.TopicByID(id)
		d := TopicDelta{Old: old, New: t}
		switch {
		case t != nil:
			w.byID = w.byID.Set(id, t)
			d.Changed = changedPartitions(old, t)
		case old != nil:
			w.byID = w.byID.Delete(id)
		default:
			continue // came and went in between
		}
		*w.delta.topic(id) = d
	}
	for name, t := range w.names {
		if t != nil {
			w.byName = w.byName.Set(name, t)
		} else {
			w.byName = w.byName.Delete(name)
		}
	}
}

func (w *work) feed(r metarec.Record, offset int64) error {
	switch r.(type) {
	case *metarec.BeginTransaction:
		if w.withheld != nil {
			return fmt.Errorf("a transaction is already open")
		}
		w.withheld = &withheld{}
		return nil
	case *metarec.EndTransaction, *metarec.AbortTransaction:
		open := w.withheld
		if open == nil {
			return fmt.Errorf("no transaction is open")
		}
		w.withheld = nil
		if _, abort := r.(*metarec.AbortTransaction); abort {
			return nil
		}
		for n, held := range open.records {
			if err := w.replay(held, open.offsets[n]); err != nil {
				return fmt.Errorf("withheld %s at offset %d: %w", metarec.Name(held.Type()), open.offsets[n], err)
			}
		}
		return nil
	}
	if open := w.withheld; open != nil {
		// An older image may share the records, so always grow into a new array.
		w.withheld = &withheld{append(slices.Clip(open.records), r), append(slices.Clip(open.offsets), offset)}
		return nil
	}
	return w.replay(r, offset)
}

func (w *work) replay(r metarec.Record, offset int64) error {
	switch r := r.(type) {
	case *metarec.Partition:
		return w.partition(r)
	case *metarec.PartitionChange:
		return w.partitionChange(r)
	case *metarec.Topic:
		return w.newTopic(r)
	case *metarec.RemoveTopic:
		return w.removeTopic(r)
	case *metarec.ClearElr:
		return w.clearElr(r)
	case *metarec.Config:
		w.config(r)
	case *metarec.FeatureLevel:
		return w.featureLevel(r)
	case *metarec.RegisterBroker:
		w.registerBroker(r, offset)
	case *metarec.UnregisterBroker:
		return w.unregisterBroker(r)
	case *metarec.BrokerRegistrationChange:
		return w.changeBroker(r)
	case *metarec.FenceBroker:
		return w.changeBroker(&metarec.BrokerRegistrationChange{BrokerID: r.ID, BrokerEpoch: r.Epoch, Fenced: 1})
	case *metarec.UnfenceBroker:
		return w.changeBroker(&metarec.BrokerRegistrationChange{BrokerID: r.ID, BrokerEpoch: r.Epoch, Fenced: -1})
	case *metarec.RegisterController:
		w.registerController(r)
	case *metarec.UnregisterController:
		return w.unregisterController(r)
	case *metarec.ProducerIDs:
		w.producerID = r.NextProducerID
		w.delta.ProducerIDs = true
	default:
		return w.replaySecurity(r)
	}
	return nil
}

// topic gives an owned copy of a topic, nil if there is none.
func (w *work) topic(id ids.UUID) *Topic {
	if t, ok := w.topics[id]; ok {
		return t
	}
	t := w.byIDOld(id)
	if t == nil {
		return nil
	}
	own := &Topic{Name: t.Name, ID: t.ID, Partitions: slices.Clone(t.Partitions)}
	w.topics[id], w.names[own.Name] = own, own
	return own
}

func (w *work) byIDOld(id ids.UUID) *Topic { return w.old.TopicByID(id) }

func (w *work) newTopic(r *metarec.Topic) error {
	current, touched := w.names[r.Name]
	if !touched {
		current = w.old.Topic(r.Name)
	}
	if current != nil {
		return fmt.Errorf("topic %q exists", r.Name)
	}
	if w.topics[r.TopicID] != nil || w.byIDOld(r.TopicID) != nil {
		return fmt.Errorf("topic id %s exists", r.TopicID)
	}
	t := &Topic{Name: r.Name, ID: r.TopicID}
	w.topics[r.TopicID], w.names[r.Name] = t, t
	return nil
}

func (w *work) removeTopic(r *metarec.RemoveTopic) error {
	t := w.topic(r.TopicID)
	if t == nil {
		return fmt.Errorf("topic id %s is unknown", r.TopicID)
	}
	w.topics[t.ID], w.names[t.Name] = nil, nil
	if key := (Resource{TopicConfig, t.Name}); w.Config(key.Type, key.Name) != nil {
		w.configs = w.configs.Delete(key)
		delete(w.ownConfigs, key)
		mark(&w.delta.Configs, key)
	}
	return nil
}

func (w *work) partition(r *metarec.Partition) error {
	t := w.topic(r.TopicID)
	if t == nil {
		return fmt.Errorf("topic id %s is unknown", r.TopicID)
	}
	if r.PartitionID < 0 || int(r.PartitionID) > len(t.Partitions) {
		return fmt.Errorf("partition %d of %q while it has %d", r.PartitionID, t.Name, len(t.Partitions))
	}
	p := &Partition{
		Replicas: r.Replicas, ISR: r.ISR, Removing: r.RemovingReplicas, Adding: r.AddingReplicas,
		ELR: none(r.EligibleLeaderReplicas), LastKnownELR: none(r.LastKnownElr),
		Leader: r.Leader, LeaderEpoch: r.LeaderEpoch, PartitionEpoch: r.PartitionEpoch,
		Recovering: r.LeaderRecoveryState == 1, Directories: r.Directories,
	}
	if len(p.Directories) != len(p.Replicas) {
		p.Directories = make([]ids.UUID, len(p.Replicas)) // MIGRATING: nothing known
	}
	if int(r.PartitionID) == len(t.Partitions) {
		t.Partitions = append(t.Partitions, p)
	} else {
		t.Partitions[r.PartitionID] = p
	}
	return nil
}

// none gives the one form of an empty list, so that images compare equal.
func none(s []int32) []int32 {
	if len(s) == 0 {
		return nil
	}
	return s
}

func (w *work) partitionChange(r *metarec.PartitionChange) error {
	t := w.topic(r.TopicID)
	old := t.Partition(r.PartitionID)
	if old == nil {
		return fmt.Errorf("partition %d of topic id %s is unknown", r.PartitionID, r.TopicID)
	}
	p, err := old.Changed(r)
	if err != nil {
		return fmt.Errorf("partition %d of %q: %w", r.PartitionID, t.Name, err)
	}
	t.Partitions[r.PartitionID] = p
	return nil
}

// Changed gives the partition after a change record.
func (p *Partition) Changed(r *metarec.PartitionChange) (*Partition, error) {
	next := *p
	set := func(dst *[]int32, s []int32) {
		if s != nil {
			*dst = none(s)
		}
	}
	set(&next.ISR, r.ISR)
	set(&next.Removing, r.RemovingReplicas)
	set(&next.Adding, r.AddingReplicas)
	set(&next.ELR, r.EligibleLeaderReplicas)
	set(&next.LastKnownELR, r.LastKnownElr)
	if r.Replicas != nil {
		next.Replicas = r.Replicas
		next.Directories = keepDirectories(p, r.Replicas)
	}
	if r.Directories != nil {
		if len(r.Directories) != len(next.Replicas) {
			return nil, fmt.Errorf("%d directories for %d replicas", len(r.Directories), len(next.Replicas))
		}
		next.Directories = r.Directories
	}
	switch r.LeaderRecoveryState {
	case metarec.NoRecoveryChange:
	case 0, 1:
		next.Recovering = r.LeaderRecoveryState == 1
	default:
		return nil, fmt.Errorf("leader recovery state %d", r.LeaderRecoveryState)
	}
	if r.Leader != metarec.NoLeaderChange {
		next.Leader = r.Leader
		next.LeaderEpoch++
	}
	next.PartitionEpoch++
	return &next, nil
}

// keepDirectories carries the directories of replicas that stay; new ones are UNASSIGNED.
func keepDirectories(p *Partition, replicas []int32) []ids.UUID {
	dirs := make([]ids.UUID, len(replicas))
	for n, id := range replicas {
		if at := slices.Index(p.Replicas, id); at >= 0 {
			dirs[n] = p.Directories[at]
		} else {
			dirs[n] = ids.DirUnassigned
		}
	}
	return dirs
}

func (w *work) clearElr(r *metarec.ClearElr) error {
	clear := func(id ids.UUID) {
		t := w.topic(id)
		for n, p := range t.Partitions {
			if len(p.ELR) > 0 || len(p.LastKnownELR) > 0 {
				next := *p
				next.ELR, next.LastKnownELR = nil, nil
				t.Partitions[n] = &next
			}
		}
	}
	if r.TopicName != "" {
		t, touched := w.names[r.TopicName]
		if !touched {
			t = w.old.Topic(r.TopicName)
		}
		if t == nil {
			return fmt.Errorf("topic %q is unknown", r.TopicName)
		}
		clear(t.ID)
		return nil
	}
	for t := range w.old.Topics() {
		if own, touched := w.topics[t.ID]; touched && own == nil || !touched && !hasELR(t) {
			continue
		}
		clear(t.ID)
	}
	for id, t := range w.topics {
		if t != nil {
			clear(id)
		}
	}
	return nil
}

func hasELR(t *Topic) bool {
	return slices.ContainsFunc(t.Partitions, func(p *Partition) bool { return len(p.ELR) > 0 || len(p.LastKnownELR) > 0 })
}

func (w *work) config(r *metarec.Config) {
	key := Resource{r.ResourceType, r.ResourceName}
	mark(&w.delta.Configs, key)
	m, ok := w.configs.Get(key)
	if !w.ownConfigs[key] {
		m = maps.Clone(m)
		w.ownConfigs[key] = true
		ok = false
	}
	if r.Value == nil {
		delete(m, r.Name)
	} else {
		if m == nil {
			m = map[string]string{}
		}
		m[r.Name] = *r.Value
	}
	switch {
	case len(m) == 0:
		w.configs = w.configs.Delete(key)
		delete(w.ownConfigs, key)
	case !ok:
		w.configs = w.configs.Set(key, m)
	}
}

func (w *work) featureLevel(r *metarec.FeatureLevel) error {
	if r.Name == feature.MetadataVersion && (r.FeatureLevel < feature.MinMetadata || r.FeatureLevel > feature.LatestMetadata) {
		return fmt.Errorf("metadata.version %d is outside of %d to %d, which this server supports", r.FeatureLevel, feature.MinMetadata, feature.LatestMetadata)
	}
	if !w.ownFeatures {
		w.features, w.ownFeatures = maps.Clone(w.features), true
	}
	if r.FeatureLevel == 0 {
		delete(w.features, r.Name)
	} else {
		w.features[r.Name] = r.FeatureLevel
	}
	mark(&w.delta.Features, r.Name)
	return nil
}

// put replaces, adds or (with nil) removes an element of a sorted slice that is owned.
func put[T any](s []*T, id int32, of func(*T) int32, v *T) []*T {
	at, found := slices.BinarySearchFunc(s, id, func(e *T, id int32) int { return cmp.Compare(of(e), id) })
	switch {
	case v == nil && found:
		return slices.Delete(s, at, at+1)
	case v == nil:
		return s
	case found:
		s[at] = v
		return s
	}
	return slices.Insert(s, at, v)
}

func (w *work) setBroker(id int32, b *Broker) {
	w.delta.broker(id, w.Broker(id), b)
	if !w.ownBrokers {
		w.brokers, w.ownBrokers = slices.Clone(w.brokers), true
	}
	w.brokers = put(w.brokers, id, func(b *Broker) int32 { return b.ID }, b)
}

func (w *work) registerBroker(r *metarec.RegisterBroker, offset int64) {
	w.setBroker(r.BrokerID, &Broker{
		ID: r.BrokerID, Epoch: r.BrokerEpoch, Incarnation: r.IncarnationID, Endpoints: r.EndPoints, Features: sortedFeatures(r.Features),
		Rack: r.Rack, Fenced: r.Fenced, ShuttingDown: r.InControlledShutdown, LogDirs: r.LogDirs,
		CordonedDirs: noDirs(r.CordonedLogDirs), RegistrationOffset: offset,
	})
}

// sortedFeatures gives the ranges in one order; Kafka writes them in any.
func sortedFeatures(f []FeatureRange) []FeatureRange {
	f = slices.Clone(f)
	slices.SortFunc(f, func(a, b FeatureRange) int { return cmp.Compare(a.Name, b.Name) })
	return f
}

func noDirs(d []ids.UUID) []ids.UUID {
	if len(d) == 0 {
		return nil
	}
	return d
}

func (w *work) registered(id int32, epoch int64) (*Broker, error) {
	b := w.Broker(id)
	if b == nil {
		return nil, fmt.Errorf("broker %d is not registered", id)
	}
	if b.Epoch != epoch {
		return nil, fmt.Errorf("broker %d has epoch %d, the record %d", id, b.Epoch, epoch)
	}
	return b, nil
}

func (w *work) unregisterBroker(r *metarec.UnregisterBroker) error {
	if _, err := w.registered(r.BrokerID, r.BrokerEpoch); err != nil {
		return err
	}
	w.setBroker(r.BrokerID, nil)
	return nil
}

func (w *work) changeBroker(r *metarec.BrokerRegistrationChange) error {
	b, err := w.registered(r.BrokerID, r.BrokerEpoch)
	if err != nil {
		return err
	}
	next := *b
	switch r.Fenced {
	case 0:
	case 1, -1:
		next.Fenced = r.Fenced == 1
	default:
		return fmt.Errorf("fenced %d", r.Fenced)
	}
	switch r.InControlledShutdown {
	case 0:
	case 1:
		next.ShuttingDown = true
	default:
		return fmt.Errorf("in controlled shutdown %d", r.InControlledShutdown)
	}
	if len(r.LogDirs) > 0 {
		next.LogDirs = r.LogDirs
	}
	if r.CordonedLogDirs != nil {
		next.CordonedDirs = noDirs(r.CordonedLogDirs)
	}
	w.setBroker(b.ID, &next)
	return nil
}

func (w *work) setController(id int32, c *Controller) {
	mark(&w.delta.Controllers, id)
	if !w.ownControls {
		w.controllers, w.ownControls = slices.Clone(w.controllers), true
	}
	w.controllers = put(w.controllers, id, func(c *Controller) int32 { return c.ID }, c)
}

func (w *work) registerController(r *metarec.RegisterController) {
	w.setController(r.ControllerID, &Controller{
		ID: r.ControllerID, Incarnation: r.IncarnationID, ZkMigrationReady: r.ZkMigrationReady,
		Endpoints: r.EndPoints, Features: sortedFeatures(r.Features),
	})
}

func (w *work) unregisterController(r *metarec.UnregisterController) error {
	if w.Controller(r.ControllerID) == nil {
		return fmt.Errorf("controller %d is not registered", r.ControllerID)
	}
	w.setController(r.ControllerID, nil)
	return nil
}

func (w *work) replaySecurity(r metarec.Record) error {
	switch r := r.(type) {
	case *metarec.ClientQuota:
		w.quota(r)
	case *metarec.AccessControlEntry:
		w.acls = w.acls.Set(r.ID, r)
		mark(&w.delta.ACLs, r.ID)
	case *metarec.RemoveAccessControlEntry:
		if w.ACL(r.ID) == nil {
			return fmt.Errorf("ACL %s is unknown", r.ID)
		}
		w.acls = w.acls.Delete(r.ID)
		mark(&w.delta.ACLs, r.ID)
	case *metarec.UserScramCredential:
		key := ScramKey{r.Name, r.Mechanism}
		w.scram = w.scram.Set(key, r)
		mark(&w.delta.Scram, key)
	case *metarec.RemoveUserScramCredential:
		key := ScramKey{r.Name, r.Mechanism}
		w.scram = w.scram.Delete(key)
		mark(&w.delta.Scram, key)
	case *metarec.DelegationToken:
		w.tokens = w.tokens.Set(r.TokenID, r)
		mark(&w.delta.Tokens, r.TokenID)
	case *metarec.RemoveDelegationToken:
		w.tokens = w.tokens.Delete(r.TokenID)
		mark(&w.delta.Tokens, r.TokenID)
	case *metarec.NoOp, *metarec.ZkMigrationState:
	default:
		return fmt.Errorf("has no replay rule")
	}
	return nil
}

// QuotaKey is one text for an entity, whatever the order of its parts; the default
// entity of a type differs from the one with an empty name.
func QuotaKey(entity []metarec.QuotaEntity) string {
	parts := slices.Clone(entity)
	slices.SortFunc(parts, func(a, b metarec.QuotaEntity) int { return cmp.Compare(a.EntityType, b.EntityType) })
	var b strings.Builder
	for _, e := range parts {
		if e.EntityName == nil {
			fmt.Fprintf(&b, "%q=default,", e.EntityType)
		} else {
			fmt.Fprintf(&b, "%q=%q,", e.EntityType, *e.EntityName)
		}
	}
	return b.String()
}

func (w *work) quota(r *metarec.ClientQuota) {
	key := QuotaKey(r.Entity)
	next := &Quota{Entity: r.Entity, Values: map[string]float64{}}
	if q := w.Quota(key); q != nil {
		next.Entity, next.Values = q.Entity, maps.Clone(q.Values)
	}
	if r.Remove {
		delete(next.Values, r.Key)
	} else {
		next.Values[r.Key] = r.Value
	}
	if len(next.Values) == 0 {
		w.quotas = w.quotas.Delete(key)
	} else {
		w.quotas = w.quotas.Set(key, next)
	}
	mark(&w.delta.Quotas, key)
}

func collect[K comparable, V any](m *immutable.SortedMap[K, V]) map[K]V {
	all := make(map[K]V, m.Len())
	for it := m.Iterator(); !it.Done(); {
		k, v, _ := it.Next()
		all[k] = v
	}
	return all
}
