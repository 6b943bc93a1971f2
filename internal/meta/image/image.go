package image

import (
	"cmp"
	"iter"
	"slices"

	"github.com/benbjohnson/immutable"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
)

// Resource types of configs.
const (
	TopicConfig         = int8(2)
	BrokerConfig        = int8(4)
	ClientMetricsConfig = int8(16)
	GroupConfig         = int8(32)
)

// NoLeader is the Leader of a partition without one.
const NoLeader = int32(-1)

// Image is the state of the cluster after the record at Offset.
type Image struct {
	offset int64
	epoch  int32

	byID        *immutable.Map[ids.UUID, *Topic]
	byName      *immutable.SortedMap[string, *Topic]
	brokers     []*Broker     // sorted by id
	controllers []*Controller // sorted by id
	configs     *immutable.SortedMap[Resource, map[string]string]
	features    map[string]int16
	producerID  int64 // first one not given away
	quotas      *immutable.SortedMap[string, *Quota]
	acls        *immutable.Map[ids.UUID, *metarec.AccessControlEntry]
	scram       *immutable.SortedMap[ScramKey, *metarec.UserScramCredential]
	tokens      *immutable.SortedMap[string, *metarec.DelegationToken]
	withheld    *withheld
}

// withheld is an open metadata transaction. Its records do not count until it ends.
type withheld struct {
	records []metarec.Record
	offsets []int64
}

// Topic is one topic; the index in Partitions is the partition's id.
type Topic struct {
	Name       string
	ID         ids.UUID
	Partitions []*Partition
}

// Partition is one partition. Directories[i] is the log directory of Replicas[i].
type Partition struct {
	Replicas, ISR, Removing, Adding, ELR, LastKnownELR []int32

	Leader, LeaderEpoch, PartitionEpoch int32

	Recovering  bool
	Directories []ids.UUID
}

// Endpoint is a listener; FeatureRange the levels of a feature that a node supports.
type (
	Endpoint     = metarec.Endpoint
	FeatureRange = metarec.FeatureRange
)

// Broker is a broker's registration.
type Broker struct {
	ID           int32
	Epoch        int64
	Incarnation  ids.UUID
	Endpoints    []Endpoint
	Features     []FeatureRange
	Rack         *string
	Fenced       bool
	ShuttingDown bool // in controlled shutdown
	LogDirs      []ids.UUID
	CordonedDirs []ids.UUID
	// RegistrationOffset is where the registration stands in the log. A broker whose image
	// has reached it knows of its own registration.
	RegistrationOffset int64
}

// Active reports a broker that may lead and be in ISRs: neither fenced nor shutting down.
func (b *Broker) Active() bool { return !b.Fenced && !b.ShuttingDown }

// Endpoint finds a listener by its name.
func (b *Broker) Endpoint(name string) (Endpoint, bool) {
	for _, e := range b.Endpoints {
		if e.Name == name {
			return e, true
		}
	}
	return Endpoint{}, false
}

// HasOnlineDir reports whether a replica assigned to dir can be served: the reserved ids
// and every directory that the registration lists. A registration without directories
// comes from before directory assignment and has all.
func (b *Broker) HasOnlineDir(dir ids.UUID) bool {
	return len(b.LogDirs) == 0 || dir == ids.DirMigrating || dir == ids.DirUnassigned || slices.Contains(b.LogDirs, dir)
}

// Placeable reports whether the broker has a directory that is not cordoned.
func (b *Broker) Placeable() bool {
	if len(b.LogDirs) == 0 {
		return true
	}
	for _, d := range b.LogDirs {
		if !slices.Contains(b.CordonedDirs, d) {
			return true
		}
	}
	return false
}

// Controller is a controller's registration.
type Controller struct {
	ID               int32
	Incarnation      ids.UUID
	ZkMigrationReady bool
	Endpoints        []Endpoint
	Features         []FeatureRange
}

// Resource names what has configs. Name "" of a BrokerConfig is the cluster-wide default.
type Resource struct {
	Type int8
	Name string
}

// Quota is the quotas of one entity.
type Quota struct {
	Entity []metarec.QuotaEntity
	Values map[string]float64
}

// ScramKey names a SCRAM credential.
type ScramKey struct {
	User      string
	Mechanism int8
}

type uuidHasher struct{}

func (uuidHasher) Hash(u ids.UUID) uint32 {
	var h uint32 = 2166136261
	for _, b := range u {
		h = (h ^ uint32(b)) * 16777619
	}
	return h
}
func (uuidHasher) Equal(a, b ids.UUID) bool { return a == b }

type ordered[K any] func(a, b K) int

func (f ordered[K]) Compare(a, b K) int { return f(a, b) }

// Empty is the cluster before its first record.
func Empty() *Image { return empty }

var empty = &Image{
	offset:   -1,
	epoch:    -1,
	byID:     immutable.NewMap[ids.UUID, *Topic](uuidHasher{}),
	byName:   immutable.NewSortedMap[string, *Topic](ordered[string](cmp.Compare[string])),
	configs:  immutable.NewSortedMap[Resource, map[string]string](ordered[Resource](compareResource)),
	features: map[string]int16{},
	quotas:   immutable.NewSortedMap[string, *Quota](ordered[string](cmp.Compare[string])),
	acls:     immutable.NewMap[ids.UUID, *metarec.AccessControlEntry](uuidHasher{}),
	scram:    immutable.NewSortedMap[ScramKey, *metarec.UserScramCredential](ordered[ScramKey](compareScram)),
	tokens:   immutable.NewSortedMap[string, *metarec.DelegationToken](ordered[string](cmp.Compare[string])),
}

func compareResource(a, b Resource) int {
	return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name))
}

func compareScram(a, b ScramKey) int {
	return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Mechanism, b.Mechanism))
}

// Offset and Epoch are those of the last record; -1 for an empty image.
func (i *Image) Offset() int64 { return i.offset }
func (i *Image) Epoch() int32  { return i.epoch }

// IsEmpty reports a cluster that was not bootstrapped: it has no metadata.version.
func (i *Image) IsEmpty() bool { return i.MetadataVersion() == 0 }

// InTransaction reports an open metadata transaction; no snapshot may be made inside it.
func (i *Image) InTransaction() bool { return i.withheld != nil }

// Topic finds a topic by name; nil if there is none.
func (i *Image) Topic(name string) *Topic {
	t, _ := i.byName.Get(name)
	return t
}

// TopicByID finds a topic by id; nil if there is none.
func (i *Image) TopicByID(id ids.UUID) *Topic {
	t, _ := i.byID.Get(id)
	return t
}

// Partition finds a partition; nil if there is none.
func (i *Image) Partition(id ids.UUID, partition int32) *Partition {
	return i.TopicByID(id).Partition(partition)
}

// Partition is the partition with this id, nil if t is nil or has none.
func (t *Topic) Partition(partition int32) *Partition {
	if t == nil || partition < 0 || int(partition) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[partition]
}

// Topics goes over all topics by name.
func (i *Image) Topics() iter.Seq[*Topic] { return sortedValues(i.byName) }

// TopicCount is the number of topics.
func (i *Image) TopicCount() int { return i.byName.Len() }

func sortedValues[K, V any](m *immutable.SortedMap[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for it := m.Iterator(); !it.Done(); {
			_, v, _ := it.Next()
			if !yield(v) {
				return
			}
		}
	}
}

// Broker finds a registered broker; nil if there is none.
func (i *Image) Broker(id int32) *Broker {
	if at, ok := slices.BinarySearchFunc(i.brokers, id, func(b *Broker, id int32) int { return cmp.Compare(b.ID, id) }); ok {
		return i.brokers[at]
	}
	return nil
}

// Brokers is all registered brokers by id.
func (i *Image) Brokers() []*Broker { return i.brokers }

// Controller finds a registered controller; nil if there is none.
func (i *Image) Controller(id int32) *Controller {
	if at, ok := slices.BinarySearchFunc(i.controllers, id, func(c *Controller, id int32) int { return cmp.Compare(c.ID, id) }); ok {
		return i.controllers[at]
	}
	return nil
}

// Controllers is all registered controllers by id.
func (i *Image) Controllers() []*Controller { return i.controllers }

// Config is the stored configs of a resource; nil if it has none.
func (i *Image) Config(typ int8, name string) map[string]string {
	m, _ := i.configs.Get(Resource{typ, name})
	return m
}

// Configs goes over all resources with stored configs.
func (i *Image) Configs() iter.Seq2[Resource, map[string]string] {
	return func(yield func(Resource, map[string]string) bool) {
		for it := i.configs.Iterator(); !it.Done(); {
			k, v, _ := it.Next()
			if !yield(k, v) {
				return
			}
		}
	}
}

// Feature is the finalized level of a feature; 0 if it is not finalized.
func (i *Image) Feature(name string) int16 { return i.features[name] }

// Features is all finalized levels above 0.
func (i *Image) Features() map[string]int16 { return i.features }

// MetadataVersion is the finalized level of metadata.version; 0 before bootstrap.
func (i *Image) MetadataVersion() int16 { return i.features[feature.MetadataVersion] }

// ELREnabled reports that eligible leader replicas are kept.
func (i *Image) ELREnabled() bool { return i.features[feature.ELR] >= 1 }

// NextProducerID is the first producer id that no broker has been given.
func (i *Image) NextProducerID() int64 { return i.producerID }

// Quotas goes over the quotas of all entities.
func (i *Image) Quotas() iter.Seq[*Quota] { return sortedValues(i.quotas) }

// Quota finds the quotas of an entity by its key (QuotaKey); nil if it has none.
func (i *Image) Quota(key string) *Quota {
	q, _ := i.quotas.Get(key)
	return q
}

// ACLs goes over all access control entries in no particular order.
func (i *Image) ACLs() iter.Seq[*metarec.AccessControlEntry] {
	return func(yield func(*metarec.AccessControlEntry) bool) {
		for it := i.acls.Iterator(); !it.Done(); {
			_, v, _ := it.Next()
			if !yield(v) {
				return
			}
		}
	}
}

// ACL finds an access control entry by id; nil if there is none.
func (i *Image) ACL(id ids.UUID) *metarec.AccessControlEntry {
	a, _ := i.acls.Get(id)
	return a
}

// Scram finds a SCRAM credential; nil if there is none.
func (i *Image) Scram(user string, mechanism int8) *metarec.UserScramCredential {
	c, _ := i.scram.Get(ScramKey{user, mechanism})
	return c
}

// Scrams goes over all SCRAM credentials by user and mechanism.
func (i *Image) Scrams() iter.Seq[*metarec.UserScramCredential] { return sortedValues(i.scram) }

// Token finds a delegation token; nil if there is none.
func (i *Image) Token(id string) *metarec.DelegationToken {
	t, _ := i.tokens.Get(id)
	return t
}

// Tokens goes over all delegation tokens by id.
func (i *Image) Tokens() iter.Seq[*metarec.DelegationToken] { return sortedValues(i.tokens) }
