package metarec

import "runnel/internal/kit/ids"

// AbortTransaction discards the open metadata transaction.
type AbortTransaction struct {
	Reason *string
}

func (*AbortTransaction) Type() int16 { return 25 }

func (*AbortTransaction) code(c *coder) {
}

func (r *AbortTransaction) tags(int16) (set uint16) {
	if r.Reason != nil {
		set |= 1 << 0
	}
	return set
}

func (r *AbortTransaction) tagged(c *coder, tag int) bool {
	switch {
	case tag == 0:
		c.nullableString(&r.Reason)
	default:
		return false
	}
	return true
}

// AccessControlEntry adds an ACL.
type AccessControlEntry struct {
	ID             ids.UUID
	ResourceType   int8
	ResourceName   string
	PatternType    int8
	Principal      string
	Host           string
	Operation      int8
	PermissionType int8
}

func (*AccessControlEntry) Type() int16 { return 18 }

func (r *AccessControlEntry) code(c *coder) {
	c.uuid(&r.ID)
	c.int8(&r.ResourceType)
	c.string(&r.ResourceName)
	c.int8(&r.PatternType)
	c.string(&r.Principal)
	c.string(&r.Host)
	c.int8(&r.Operation)
	c.int8(&r.PermissionType)
}

func (*AccessControlEntry) tags(int16) uint16 { return 0 }

func (*AccessControlEntry) tagged(*coder, int) bool { return false }

// BeginTransaction opens a metadata transaction.
type BeginTransaction struct {
	Name *string
}

func (*BeginTransaction) Type() int16 { return 23 }

func (*BeginTransaction) code(c *coder) {
}

func (r *BeginTransaction) tags(int16) (set uint16) {
	if r.Name != nil {
		set |= 1 << 0
	}
	return set
}

func (r *BeginTransaction) tagged(c *coder, tag int) bool {
	switch {
	case tag == 0:
		c.nullableString(&r.Name)
	default:
		return false
	}
	return true
}

// BrokerRegistrationChange changes a registration: Fenced and InControlledShutdown are 0 for no change.
type BrokerRegistrationChange struct {
	BrokerID             int32
	BrokerEpoch          int64
	Fenced               int8
	InControlledShutdown int8
	LogDirs              []ids.UUID
	CordonedLogDirs      []ids.UUID
}

func (*BrokerRegistrationChange) Type() int16 { return 17 }

func (r *BrokerRegistrationChange) code(c *coder) {
	c.int32(&r.BrokerID)
	c.int64(&r.BrokerEpoch)
}

func (r *BrokerRegistrationChange) tags(version int16) (set uint16) {
	if r.Fenced != 0 {
		set |= 1 << 0
	}
	if version >= 1 && r.InControlledShutdown != 0 {
		set |= 1 << 1
	}
	if version >= 2 && len(r.LogDirs) > 0 {
		set |= 1 << 2
	}
	if version >= 3 && r.CordonedLogDirs != nil {
		set |= 1 << 3
	}
	return set
}

func (r *BrokerRegistrationChange) tagged(c *coder, tag int) bool {
	switch {
	case tag == 0:
		c.int8(&r.Fenced)
	case tag == 1 && c.version >= 1:
		c.int8(&r.InControlledShutdown)
	case tag == 2 && c.version >= 2:
		c.uuids(&r.LogDirs, false)
	case tag == 3 && c.version >= 3:
		c.uuids(&r.CordonedLogDirs, true)
	default:
		return false
	}
	return true
}

// ClearElr clears the eligible leader replicas of one topic, or of all when TopicName is empty.
type ClearElr struct {
	TopicName string
}

func (*ClearElr) Type() int16 { return 28 }

func (r *ClearElr) code(c *coder) {
	c.string(&r.TopicName)
}

func (*ClearElr) tags(int16) uint16 { return 0 }

func (*ClearElr) tagged(*coder, int) bool { return false }

// ClientQuota sets or removes one quota of an entity.
type ClientQuota struct {
	Entity []QuotaEntity
	Key    string
	Value  float64
	Remove bool
}

func (*ClientQuota) Type() int16 { return 14 }

func (r *ClientQuota) code(c *coder) {
	array(c, &r.Entity, false, (*coder).quotaEntity)
	c.string(&r.Key)
	c.float64(&r.Value)
	c.bool(&r.Remove)
}

func (*ClientQuota) tags(int16) uint16 { return 0 }

func (*ClientQuota) tagged(*coder, int) bool { return false }

// Config sets a config, or deletes it when Value is nil.
type Config struct {
	ResourceType int8
	ResourceName string
	Name         string
	Value        *string
}

func (*Config) Type() int16 { return 4 }

func (r *Config) code(c *coder) {
	c.int8(&r.ResourceType)
	c.string(&r.ResourceName)
	c.string(&r.Name)
	c.nullableString(&r.Value)
}

func (*Config) tags(int16) uint16 { return 0 }

func (*Config) tagged(*coder, int) bool { return false }

// DelegationToken adds or renews a delegation token.
type DelegationToken struct {
	Owner               string
	Requester           string
	Renewers            []string
	IssueTimestamp      int64
	MaxTimestamp        int64
	ExpirationTimestamp int64
	TokenID             string
}

func (*DelegationToken) Type() int16 { return 10 }

func (r *DelegationToken) code(c *coder) {
	c.string(&r.Owner)
	c.string(&r.Requester)
	array(c, &r.Renewers, false, (*coder).string)
	c.int64(&r.IssueTimestamp)
	c.int64(&r.MaxTimestamp)
	c.int64(&r.ExpirationTimestamp)
	c.string(&r.TokenID)
}

func (*DelegationToken) tags(int16) uint16 { return 0 }

func (*DelegationToken) tagged(*coder, int) bool { return false }

// EndTransaction makes the open metadata transaction visible.
type EndTransaction struct {
}

func (*EndTransaction) Type() int16 { return 24 }

func (*EndTransaction) code(c *coder) {
}

func (*EndTransaction) tags(int16) uint16 { return 0 }

func (*EndTransaction) tagged(*coder, int) bool { return false }

// FeatureLevel finalizes a feature level; 0 removes the feature.
type FeatureLevel struct {
	Name         string
	FeatureLevel int16
}

func (*FeatureLevel) Type() int16 { return 12 }

func (r *FeatureLevel) code(c *coder) {
	c.string(&r.Name)
	c.int16(&r.FeatureLevel)
}

func (*FeatureLevel) tags(int16) uint16 { return 0 }

func (*FeatureLevel) tagged(*coder, int) bool { return false }

// FenceBroker is the fencing record of metadata versions before 3.3-IV2.
type FenceBroker struct {
	ID    int32
	Epoch int64
}

func (*FenceBroker) Type() int16 { return 7 }

func (r *FenceBroker) code(c *coder) {
	c.int32(&r.ID)
	c.int64(&r.Epoch)
}

func (*FenceBroker) tags(int16) uint16 { return 0 }

func (*FenceBroker) tagged(*coder, int) bool { return false }

// NoOp only moves the offset.
type NoOp struct {
}

func (*NoOp) Type() int16 { return 20 }

func (*NoOp) code(c *coder) {
}

func (*NoOp) tags(int16) uint16 { return 0 }

func (*NoOp) tagged(*coder, int) bool { return false }

// PartitionChange changes a partition; nil slices and the No... values leave a field as it is. Make it with NewPartitionChange.
type PartitionChange struct {
	PartitionID            int32
	TopicID                ids.UUID
	ISR                    []int32
	Leader                 int32
	Replicas               []int32
	RemovingReplicas       []int32
	AddingReplicas         []int32
	LeaderRecoveryState    int8
	Directories            []ids.UUID
	EligibleLeaderReplicas []int32
	LastKnownElr           []int32
}

func (*PartitionChange) Type() int16 { return 5 }

func (r *PartitionChange) code(c *coder) {
	c.int32(&r.PartitionID)
	c.uuid(&r.TopicID)
}

func (r *PartitionChange) tags(version int16) (set uint16) {
	if r.ISR != nil {
		set |= 1 << 0
	}
	if r.Leader != -2 {
		set |= 1 << 1
	}
	if r.Replicas != nil {
		set |= 1 << 2
	}
	if r.RemovingReplicas != nil {
		set |= 1 << 3
	}
	if r.AddingReplicas != nil {
		set |= 1 << 4
	}
	if r.LeaderRecoveryState != -1 {
		set |= 1 << 5
	}
	if version >= 2 && r.EligibleLeaderReplicas != nil {
		set |= 1 << 6
	}
	if version >= 2 && r.LastKnownElr != nil {
		set |= 1 << 7
	}
	if version >= 1 && r.Directories != nil {
		set |= 1 << 8
	}
	return set
}

func (r *PartitionChange) tagged(c *coder, tag int) bool {
	switch {
	case tag == 0:
		c.int32s(&r.ISR, true)
	case tag == 1:
		c.int32(&r.Leader)
	case tag == 2:
		c.int32s(&r.Replicas, true)
	case tag == 3:
		c.int32s(&r.RemovingReplicas, true)
	case tag == 4:
		c.int32s(&r.AddingReplicas, true)
	case tag == 5:
		c.int8(&r.LeaderRecoveryState)
	case tag == 6 && c.version >= 2:
		c.int32s(&r.EligibleLeaderReplicas, true)
	case tag == 7 && c.version >= 2:
		c.int32s(&r.LastKnownElr, true)
	case tag == 8 && c.version >= 1:
		c.uuids(&r.Directories, true)
	default:
		return false
	}
	return true
}

// Partition creates a partition or states it whole.
type Partition struct {
	PartitionID            int32
	TopicID                ids.UUID
	Replicas               []int32
	ISR                    []int32
	RemovingReplicas       []int32
	AddingReplicas         []int32
	Leader                 int32
	LeaderRecoveryState    int8
	LeaderEpoch            int32
	PartitionEpoch         int32
	Directories            []ids.UUID
	EligibleLeaderReplicas []int32
	LastKnownElr           []int32
}

func (*Partition) Type() int16 { return 3 }

func (r *Partition) code(c *coder) {
	c.int32(&r.PartitionID)
	c.uuid(&r.TopicID)
	c.int32s(&r.Replicas, false)
	c.int32s(&r.ISR, false)
	c.int32s(&r.RemovingReplicas, false)
	c.int32s(&r.AddingReplicas, false)
	c.int32(&r.Leader)
	c.int32(&r.LeaderEpoch)
	c.int32(&r.PartitionEpoch)
	if c.version >= 1 {
		c.uuids(&r.Directories, false)
	}
}

func (r *Partition) tags(version int16) (set uint16) {
	if r.LeaderRecoveryState != 0 {
		set |= 1 << 0
	}
	if version >= 2 && r.EligibleLeaderReplicas != nil {
		set |= 1 << 1
	}
	if version >= 2 && r.LastKnownElr != nil {
		set |= 1 << 2
	}
	return set
}

func (r *Partition) tagged(c *coder, tag int) bool {
	switch {
	case tag == 0:
		c.int8(&r.LeaderRecoveryState)
	case tag == 1 && c.version >= 2:
		c.int32s(&r.EligibleLeaderReplicas, true)
	case tag == 2 && c.version >= 2:
		c.int32s(&r.LastKnownElr, true)
	default:
		return false
	}
	return true
}

// ProducerIDs moves the first producer id that no broker has been given.
type ProducerIDs struct {
	BrokerID       int32
	BrokerEpoch    int64
	NextProducerID int64
}

func (*ProducerIDs) Type() int16 { return 15 }

func (r *ProducerIDs) code(c *coder) {
	c.int32(&r.BrokerID)
	c.int64(&r.BrokerEpoch)
	c.int64(&r.NextProducerID)
}

func (*ProducerIDs) tags(int16) uint16 { return 0 }

func (*ProducerIDs) tagged(*coder, int) bool { return false }

// RegisterBroker is a broker registration; it replaces the earlier one of the same id.
type RegisterBroker struct {
	BrokerID             int32
	IsMigratingZkBroker  bool
	IncarnationID        ids.UUID
	BrokerEpoch          int64
	EndPoints            []Endpoint
	Features             []FeatureRange
	Rack                 *string
	Fenced               bool
	InControlledShutdown bool
	LogDirs              []ids.UUID
	CordonedLogDirs      []ids.UUID
}

func (*RegisterBroker) Type() int16 { return 0 }

func (r *RegisterBroker) code(c *coder) {
	c.int32(&r.BrokerID)
	if c.version >= 2 {
		c.bool(&r.IsMigratingZkBroker)
	}
	c.uuid(&r.IncarnationID)
	c.int64(&r.BrokerEpoch)
	array(c, &r.EndPoints, false, (*coder).endpoint)
	array(c, &r.Features, false, (*coder).featureRange)
	c.nullableString(&r.Rack)
	c.bool(&r.Fenced)
	if c.version >= 1 {
		c.bool(&r.InControlledShutdown)
	}
}

func (r *RegisterBroker) tags(version int16) (set uint16) {
	if version >= 3 && len(r.LogDirs) > 0 {
		set |= 1 << 0
	}
	if version >= 4 && r.CordonedLogDirs != nil {
		set |= 1 << 1
	}
	return set
}

func (r *RegisterBroker) tagged(c *coder, tag int) bool {
	switch {
	case tag == 0 && c.version >= 3:
		c.uuids(&r.LogDirs, false)
	case tag == 1 && c.version >= 4:
		c.uuids(&r.CordonedLogDirs, true)
	default:
		return false
	}
	return true
}

// RegisterController is the registration of a controller.
type RegisterController struct {
	ControllerID     int32
	IncarnationID    ids.UUID
	ZkMigrationReady bool
	EndPoints        []Endpoint
	Features         []FeatureRange
}

func (*RegisterController) Type() int16 { return 27 }

func (r *RegisterController) code(c *coder) {
	c.int32(&r.ControllerID)
	c.uuid(&r.IncarnationID)
	c.bool(&r.ZkMigrationReady)
	array(c, &r.EndPoints, false, (*coder).endpoint)
	array(c, &r.Features, false, (*coder).featureRange)
}

func (*RegisterController) tags(int16) uint16 { return 0 }

func (*RegisterController) tagged(*coder, int) bool { return false }

// RemoveAccessControlEntry removes an ACL by its id.
type RemoveAccessControlEntry struct {
	ID ids.UUID
}

func (*RemoveAccessControlEntry) Type() int16 { return 19 }

func (r *RemoveAccessControlEntry) code(c *coder) {
	c.uuid(&r.ID)
}

func (*RemoveAccessControlEntry) tags(int16) uint16 { return 0 }

func (*RemoveAccessControlEntry) tagged(*coder, int) bool { return false }

// RemoveDelegationToken removes a delegation token.
type RemoveDelegationToken struct {
	TokenID string
}

func (*RemoveDelegationToken) Type() int16 { return 26 }

func (r *RemoveDelegationToken) code(c *coder) {
	c.string(&r.TokenID)
}

func (*RemoveDelegationToken) tags(int16) uint16 { return 0 }

func (*RemoveDelegationToken) tagged(*coder, int) bool { return false }

// RemoveTopic removes a topic with its partitions and configs.
type RemoveTopic struct {
	TopicID ids.UUID
}

func (*RemoveTopic) Type() int16 { return 9 }

func (r *RemoveTopic) code(c *coder) {
	c.uuid(&r.TopicID)
}

func (*RemoveTopic) tags(int16) uint16 { return 0 }

func (*RemoveTopic) tagged(*coder, int) bool { return false }

// RemoveUserScramCredential removes one SCRAM credential of a user.
type RemoveUserScramCredential struct {
	Name      string
	Mechanism int8
}

func (*RemoveUserScramCredential) Type() int16 { return 22 }

func (r *RemoveUserScramCredential) code(c *coder) {
	c.string(&r.Name)
	c.int8(&r.Mechanism)
}

func (*RemoveUserScramCredential) tags(int16) uint16 { return 0 }

func (*RemoveUserScramCredential) tagged(*coder, int) bool { return false }

// Topic creates a topic without partitions.
type Topic struct {
	Name    string
	TopicID ids.UUID
}

func (*Topic) Type() int16 { return 2 }

func (r *Topic) code(c *coder) {
	c.string(&r.Name)
	c.uuid(&r.TopicID)
}

func (*Topic) tags(int16) uint16 { return 0 }

func (*Topic) tagged(*coder, int) bool { return false }

// UnfenceBroker is the unfencing record of metadata versions before 3.3-IV2.
type UnfenceBroker struct {
	ID    int32
	Epoch int64
}

func (*UnfenceBroker) Type() int16 { return 8 }

func (r *UnfenceBroker) code(c *coder) {
	c.int32(&r.ID)
	c.int64(&r.Epoch)
}

func (*UnfenceBroker) tags(int16) uint16 { return 0 }

func (*UnfenceBroker) tagged(*coder, int) bool { return false }

// UnregisterBroker removes a registration.
type UnregisterBroker struct {
	BrokerID    int32
	BrokerEpoch int64
}

func (*UnregisterBroker) Type() int16 { return 1 }

func (r *UnregisterBroker) code(c *coder) {
	c.int32(&r.BrokerID)
	c.int64(&r.BrokerEpoch)
}

func (*UnregisterBroker) tags(int16) uint16 { return 0 }

func (*UnregisterBroker) tagged(*coder, int) bool { return false }

// UnregisterController removes the registration of a controller.
type UnregisterController struct {
	ControllerID int32
}

func (*UnregisterController) Type() int16 { return 29 }

func (r *UnregisterController) code(c *coder) {
	c.int32(&r.ControllerID)
}

func (*UnregisterController) tags(int16) uint16 { return 0 }

func (*UnregisterController) tagged(*coder, int) bool { return false }

// UserScramCredential stores one SCRAM credential of a user.
type UserScramCredential struct {
	Name       string
	Mechanism  int8
	Salt       []byte
	StoredKey  []byte
	ServerKey  []byte
	Iterations int32
}

func (*UserScramCredential) Type() int16 { return 11 }

func (r *UserScramCredential) code(c *coder) {
	c.string(&r.Name)
	c.int8(&r.Mechanism)
	c.bytes(&r.Salt)
	c.bytes(&r.StoredKey)
	c.bytes(&r.ServerKey)
	c.int32(&r.Iterations)
}

func (*UserScramCredential) tags(int16) uint16 { return 0 }

func (*UserScramCredential) tagged(*coder, int) bool { return false }

// ZkMigrationState is a remnant of the migration from ZooKeeper.
type ZkMigrationState struct {
	ZkMigrationState int8
}

func (*ZkMigrationState) Type() int16 { return 21 }

func (r *ZkMigrationState) code(c *coder) {
	c.int8(&r.ZkMigrationState)
}

func (*ZkMigrationState) tags(int16) uint16 { return 0 }

func (*ZkMigrationState) tagged(*coder, int) bool { return false }

// QuotaEntity is one part of a quota entity; a nil EntityName is the default entity.
type QuotaEntity struct {
	EntityType string
	EntityName *string
}

func (c *coder) quotaEntity(v *QuotaEntity) {
	c.string(&v.EntityType)
	c.nullableString(&v.EntityName)
	c.noTags()
}

// Endpoint is a listener of a broker or a controller.
type Endpoint struct {
	Name             string
	Host             string
	Port             uint16
	SecurityProtocol int16
}

func (c *coder) endpoint(v *Endpoint) {
	c.string(&v.Name)
	c.string(&v.Host)
	c.uint16(&v.Port)
	c.int16(&v.SecurityProtocol)
	c.noTags()
}

// FeatureRange is the range of levels of a feature that a node supports.
type FeatureRange struct {
	Name                string
	MinSupportedVersion int16
	MaxSupportedVersion int16
}

func (c *coder) featureRange(v *FeatureRange) {
	c.string(&v.Name)
	c.int16(&v.MinSupportedVersion)
	c.int16(&v.MaxSupportedVersion)
	c.noTags()
}

// NoLeaderChange and NoRecoveryChange leave these fields of a PartitionChange as they are.
const (
	NoLeaderChange   = int32(-2)
	NoRecoveryChange = int8(-1)
)

// NewPartitionChange gives a change that changes nothing.
func NewPartitionChange() *PartitionChange {
	return &PartitionChange{PartitionID: -1, Leader: NoLeaderChange, LeaderRecoveryState: NoRecoveryChange}
}
