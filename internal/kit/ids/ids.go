package ids

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// UUID is a 16-byte Kafka Uuid. Its text form is URL-safe base64 without padding,
// 22 characters (spec: org.apache.kafka.common.Uuid).
type UUID [16]byte

// Reserved directory ids (KIP-858).
var (
	// Zero means "none" wherever a UUID is optional. As a directory id it is MIGRATING.
	Zero UUID
	// MetadataTopicID is the fixed id of __cluster_metadata; as a directory id the same
	// value means UNASSIGNED.
	MetadataTopicID = UUID{15: 1}
	DirMigrating    = UUID{}
	DirUnassigned   = UUID{15: 1}
	DirLost         = UUID{15: 2}
)

// String gives Kafka's text form.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports the absent id.
func (u UUID) IsZero() bool { return u == Zero }

// Reserved reports ids that Kafka keeps for itself: high half zero, low half below 100.
func (u UUID) Reserved() bool {
	for _, b := range u[:15] {
		if b != 0 {
			return false
		}
	}
	return u[15] < 100
}

// ParseUUID reads the text form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(s, "="))
	if err != nil || len(b) != 16 {
		return u, fmt.Errorf("%q is not a uuid: want 22 characters of URL-safe base64", s)
	}
	copy(u[:], b)
	return u, nil
}

// NewUUID draws a random id (RFC 4122 version 4 bits) from random, which fills its
// argument; ids whose text starts with "-" and reserved ids are drawn again, so that
// an id can be typed as a command's argument.
func NewUUID(random func([]byte)) UUID {
	for {
		var u UUID
		random(u[:])
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if !u.Reserved() && u.String()[0] != '-' {
			return u
		}
	}
}

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String gives "topic-partition", which is also the partition's directory name.
func (tp TopicPartition) String() string {
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// ParseDirName splits a partition directory's plain name at its last dash.
func ParseDirName(name string) (TopicPartition, error) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 || i == len(name)-1 {
		return TopicPartition{}, fmt.Errorf("directory name %q is not TOPIC-PARTITION", name)
	}
	p, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || p < 0 {
		return TopicPartition{}, fmt.Errorf("directory name %q is not TOPIC-PARTITION", name)
	}
	return TopicPartition{name[:i], int32(p)}, nil
}

// Names of Kafka's internal topics.
const (
	MetadataTopic        = "__cluster_metadata"
	ConsumerOffsetsTopic = "__consumer_offsets"
	TransactionTopic     = "__transaction_state"
	ShareStateTopic      = "__share_group_state"
)

// IsInternal reports topics that clients may not write to.
func IsInternal(topic string) bool {
	return topic == ConsumerOffsetsTopic || topic == TransactionTopic || topic == ShareStateTopic
}
