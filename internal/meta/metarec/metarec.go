package metarec

import (
	"errors"
	"fmt"
)

// Record is one metadata record. The types in records.go implement it by pointer.
type Record interface {
	// Type is Kafka's apiKey of the record.
	Type() int16
	// code visits the untagged fields in schema order, reading or writing them.
	code(c *coder)
	// tags gives the bit set of tagged fields that c.version writes for this value.
	tags(version int16) uint16
	// tagged visits the tagged field; false when the version does not have it.
	tagged(c *coder, tag int) bool
}

// Errors of Decode, wrapped with what was found.
var (
	ErrMalformed   = errors.New("malformed metadata record")
	ErrUnknownType = errors.New("unknown metadata record type")
	ErrVersion     = errors.New("unsupported metadata record version")
)

const frameVersion = 1

// Encode gives the framed value of a metadata record as it stands in the log.
func Encode(r Record, version int16) []byte {
	return Append(make([]byte, 0, 64), r, version)
}

// Append is Encode into dst.
func Append(dst []byte, r Record, version int16) []byte {
	dst = appendUvarint(dst, frameVersion)
	dst = appendUvarint(dst, uint64(r.Type()))
	dst = appendUvarint(dst, uint64(version))
	c := coder{b: dst, version: version}
	c.record(r)
	return c.b
}

// Decode reads a framed value. Byte strings are copied, so value may be reused.
func Decode(value []byte) (Record, int16, error) {
	c := coder{b: value, reading: true}
	frame, typ, version := c.uvarint(), c.uvarint(), c.uvarint()
	if c.err != nil {
		return nil, 0, fmt.Errorf("%w: frame of %d bytes ends early", ErrMalformed, len(value))
	}
	if frame != frameVersion {
		return nil, 0, fmt.Errorf("%w: frame version %d, want %d", ErrMalformed, frame, frameVersion)
	}
	if typ >= uint64(len(kinds)) || kinds[typ].make == nil {
		return nil, 0, fmt.Errorf("%w %d", ErrUnknownType, typ)
	}
	kind := &kinds[typ]
	if version > uint64(kind.max) {
		return nil, 0, fmt.Errorf("%w: %s version %d, supported 0 to %d", ErrVersion, kind.name, version, kind.max)
	}
	c.version = int16(version)
	r := kind.make()
	c.record(r)
	if c.err == nil && len(c.b) != 0 {
		c.err = fmt.Errorf("%d bytes after the body", len(c.b))
	}
	if c.err != nil {
		return nil, 0, fmt.Errorf("%w: %s version %d: %v", ErrMalformed, kind.name, version, c.err)
	}
	return r, c.version, nil
}

// Name is Kafka's name of a record type, for messages and dumps.
func Name(typ int16) string {
	if typ < 0 || int(typ) >= len(kinds) || kinds[typ].make == nil {
		return fmt.Sprintf("record type %d", typ)
	}
	return kinds[typ].name
}

// MaxVersion is the highest version of a record type this package reads and writes; -1
// for an unknown type.
func MaxVersion(typ int16) int16 {
	if typ < 0 || int(typ) >= len(kinds) || kinds[typ].make == nil {
		return -1
	}
	return kinds[typ].max
}

// VersionFor is the version that a controller at the finalized metadata.version level
// writes. BrokerRegistrationChange takes the lowest version that holds what changed.
func VersionFor(r Record, level int16) int16 {
	switch r := r.(type) {
	case *RegisterBroker:
		switch {
		case level >= 30:
			return 4
		case level >= 17:
			return 3
		case level >= 8:
			return 2
		}
		return 1
	case *Partition, *PartitionChange:
		switch {
		case level >= 23:
			return 2
		case level >= 17:
			return 1
		}
		return 0
	case *BrokerRegistrationChange:
		switch {
		case r.CordonedLogDirs != nil:
			return 3
		case len(r.LogDirs) > 0:
			return 2
		case r.InControlledShutdown != 0:
			return 1
		}
		return 0
	}
	return 0
}

type kind struct {
	name string
	max  int16
	make func() Record
}

var kinds = [...]kind{
	0:  {"RegisterBrokerRecord", 4, func() Record { return &RegisterBroker{Fenced: true} }},
	1:  {"UnregisterBrokerRecord", 0, func() Record { return &UnregisterBroker{} }},
	2:  {"TopicRecord", 0, func() Record { return &Topic{} }},
	3:  {"PartitionRecord", 2, func() Record { return &Partition{} }},
	4:  {"ConfigRecord", 0, func() Record { return &Config{} }},
	5:  {"PartitionChangeRecord", 2, func() Record { return NewPartitionChange() }},
	7:  {"FenceBrokerRecord", 0, func() Record { return &FenceBroker{} }},
	8:  {"UnfenceBrokerRecord", 0, func() Record { return &UnfenceBroker{} }},
	9:  {"RemoveTopicRecord", 0, func() Record { return &RemoveTopic{} }},
	10: {"DelegationTokenRecord", 0, func() Record { return &DelegationToken{} }},
	11: {"UserScramCredentialRecord", 0, func() Record { return &UserScramCredential{} }},
	12: {"FeatureLevelRecord", 0, func() Record { return &FeatureLevel{} }},
	14: {"ClientQuotaRecord", 0, func() Record { return &ClientQuota{} }},
	15: {"ProducerIdsRecord", 0, func() Record { return &ProducerIDs{} }},
	17: {"BrokerRegistrationChangeRecord", 3, func() Record { return &BrokerRegistrationChange{} }},
	18: {"AccessControlEntryRecord", 0, func() Record { return &AccessControlEntry{} }},
	19: {"RemoveAccessControlEntryRecord", 0, func() Record { return &RemoveAccessControlEntry{} }},
	20: {"NoOpRecord", 0, func() Record { return &NoOp{} }},
	21: {"ZkMigrationStateRecord", 0, func() Record { return &ZkMigrationState{} }},
	22: {"RemoveUserScramCredentialRecord", 0, func() Record { return &RemoveUserScramCredential{} }},
	23: {"BeginTransactionRecord", 0, func() Record { return &BeginTransaction{} }},
	24: {"EndTransactionRecord", 0, func() Record { return &EndTransaction{} }},
	25: {"AbortTransactionRecord", 0, func() Record { return &AbortTransaction{} }},
	26: {"RemoveDelegationTokenRecord", 0, func() Record { return &RemoveDelegationToken{} }},
	27: {"RegisterControllerRecord", 0, func() Record { return &RegisterController{} }},
	28: {"ClearElrRecord", 0, func() Record { return &ClearElr{} }},
	29: {"UnregisterControllerRecord", 0, func() Record { return &UnregisterController{} }},
}
