package group

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/ids"
)

// Types of records in __consumer_offsets.
const (
	typeLegacyOffset = int16(0)
	typeOffset       = int16(1)
	typeGroup        = int16(2)
)

// Kind is what protocol a group speaks.
type Kind int8

const (
	Classic Kind = iota
	Consumer
	Share
	Streams
)

// String is the group type that clients see.
func (k Kind) String() string { return [...]string{"classic", "consumer", "share", "streams"}[k] }

// foreign says what a record of another protocol tells about its group.
type foreign struct {
	kind   Kind
	group  bool // the group's own record
	member bool // a member's
}

var foreignTypes = map[int16]foreign{
	3: {Consumer, true, false}, 4: {Consumer, false, false}, 5: {Consumer, false, true}, 6: {Consumer, false, false},
	7: {Consumer, false, false}, 8: {Consumer, false, false}, 16: {Consumer, false, false},
	10: {Share, false, true}, 11: {Share, true, false}, 12: {Share, false, false}, 13: {Share, false, false},
	14: {Share, false, false}, 15: {Share, false, false},
	17: {Streams, true, false}, 19: {Streams, false, true}, 20: {Streams, false, false}, 21: {Streams, false, false},
	22: {Streams, false, false}, 23: {Streams, false, false},
}

// tombstoneOrder is in which order the records of a removed group of another protocol go.
var tombstoneOrder = []int16{8, 7, 6, 5, 16, 4, 3, 22, 21, 20, 19, 23, 17}

var errKey = errors.New("malformed record key")

// keyType reads a key's record type and, for all but unknown types, its group.
func keyType(key []byte) (typ int16, groupID string, err error) {
	if len(key) < 2 {
		return 0, "", fmt.Errorf("%w: %d bytes", errKey, len(key))
	}
	typ = int16(binary.BigEndian.Uint16(key))
	if _, known := foreignTypes[typ]; !known && typ != typeLegacyOffset && typ != typeOffset && typ != typeGroup {
		return typ, "", nil
	}
	if len(key) < 4 {
		return typ, "", fmt.Errorf("%w: type %d in %d bytes", errKey, typ, len(key))
	}
	n := int(int16(binary.BigEndian.Uint16(key[2:])))
	if n < 0 || len(key) < 4+n {
		return typ, "", fmt.Errorf("%w: type %d with a group id of %d bytes", errKey, typ, n)
	}
	return typ, string(key[4 : 4+n]), nil
}

type topicPartition = ids.TopicPartition

// committed is one committed offset.
type committed struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	timestamp   int64 // of the commit, ms
	expire      int64 // -1, or when a version 1 value expires
	topicID     ids.UUID
	recordAt    int64 // offset of the record in the log, -1 until a reload
}

func offsetKey(group string, tp topicPartition) []byte {
	k := kmsg.OffsetCommitKey{Version: typeOffset, Group: group, Topic: tp.Topic, Partition: tp.Partition}
	return k.AppendTo(nil)
}

// parseOffsetKey reads the rest of a key of type 0 or 1, whose layouts are the same.
func parseOffsetKey(key []byte) (group string, tp topicPartition, err error) {
	p := key[2:]
	str := func() string {
		if err != nil || len(p) < 2 {
			err = errKey
			return ""
		}
		n := int(int16(binary.BigEndian.Uint16(p)))
		if n < 0 || len(p) < 2+n {
			err = errKey
			return ""
		}
		s := string(p[2 : 2+n])
		p = p[2+n:]
		return s
	}
	group, tp.Topic = str(), str()
	if err != nil || len(p) != 4 {
		return "", tp, fmt.Errorf("%w: offset commit", errKey)
	}
	tp.Partition = int32(binary.BigEndian.Uint32(p))
	return group, tp, nil
}

// offsetRecord writes version 4, or 1 where the client set a retention time.
func offsetRecord(group string, tp topicPartition, c *committed) runtime.Record {
	v := kmsg.OffsetCommitValue{
		Version: 4, Offset: c.offset, LeaderEpoch: c.leaderEpoch, Metadata: c.metadata,
		CommitTimestamp: c.timestamp, ExpireTimestamp: c.expire, TopicID: c.topicID,
	}
	if c.expire >= 0 {
		v.Version = 1
	}
	return runtime.Record{Key: offsetKey(group, tp), Value: v.AppendTo(nil)}
}

func parseOffset(value []byte) (*committed, error) {
	if len(value) < 2 {
		return nil, fmt.Errorf("offset commit value of %d bytes", len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > 4 {
		return nil, fmt.Errorf("offset commit value version %d is not known", v)
	}
	var v kmsg.OffsetCommitValue
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("offset commit value: %w", err)
	}
	c := &committed{offset: v.Offset, leaderEpoch: -1, metadata: v.Metadata, timestamp: v.CommitTimestamp, expire: -1, topicID: v.TopicID, recordAt: -1}
	if v.Version >= 3 {
		c.leaderEpoch = v.LeaderEpoch
	}
	if v.Version == 1 {
		c.expire = v.ExpireTimestamp
	}
	return c, nil
}

func groupKey(group string) []byte {
	k := kmsg.GroupMetadataKey{Version: typeGroup, Group: group}
	return k.AppendTo(nil)
}

func parseGroup(value []byte) (*kmsg.GroupMetadataValue, error) {
	if len(value) < 2 {
		return nil, fmt.Errorf("group metadata value of %d bytes", len(value))
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 || v > 4 {
		return nil, fmt.Errorf("group metadata value version %d is not known", v)
	}
	v := kmsg.NewGroupMetadataValue()
	if err := v.ReadFrom(value); err != nil {
		return nil, fmt.Errorf("group metadata value: %w", err)
	}
	return &v, nil
}

// subscribedTopics reads a consumer's subscription (ConsumerProtocolSubscription); only
// its version and topics are looked at.
func subscribedTopics(b []byte) ([]string, error) {
	bad := func() ([]string, error) { return nil, errors.New("malformed consumer subscription") }
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b)) < 0 {
		return bad()
	}
	n := int(int32(binary.BigEndian.Uint32(b[2:])))
	b = b[6:]
	if n < 0 || n > len(b)/2 {
		return bad()
	}
	topics := make([]string, 0, n)
	for range n {
		if len(b) < 2 {
			return bad()
		}
		l := int(int16(binary.BigEndian.Uint16(b)))
		if l < 0 || len(b) < 2+l {
			return bad()
		}
		topics, b = append(topics, string(b[2:2+l])), b[2+l:]
	}
	return topics, nil
}
