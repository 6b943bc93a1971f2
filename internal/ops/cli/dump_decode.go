package cli

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
)

var errRecordType = errors.New("a record of a type that is not known")

// groupRecordTypes name the record types of __consumer_offsets that are not decoded, which
// belong to groups of the newer protocols.
var groupRecordTypes = map[int16]string{
	3: "ConsumerGroupMetadata", 4: "ConsumerGroupPartitionMetadata", 5: "ConsumerGroupMemberMetadata", 6: "ConsumerGroupTargetAssignmentMetadata",
	7: "ConsumerGroupTargetAssignmentMember", 8: "ConsumerGroupCurrentMemberAssignment", 9: "ShareGroupPartitionMetadata", 10: "ShareGroupMemberMetadata",
	11: "ShareGroupMetadata", 12: "ShareGroupTargetAssignmentMetadata", 13: "ShareGroupTargetAssignmentMember", 14: "ShareGroupCurrentMemberAssignment",
	15: "ShareGroupStatePartitionMetadata", 16: "ConsumerGroupRegularExpression", 17: "StreamsGroupMetadata", 18: "StreamsGroupPartitionMetadata",
	19: "StreamsGroupMemberMetadata", 20: "StreamsGroupTargetAssignmentMetadata", 21: "StreamsGroupTargetAssignmentMember",
	22: "StreamsGroupCurrentMemberAssignment", 23: "StreamsGroupTopology",
}

// message is what kmsg's record types have in common.
type message interface{ ReadFrom([]byte) error }

// fillOffsets decodes a record of __consumer_offsets.
func fillOffsets(e *entry, r record.Record) error {
	if len(r.Key) < 2 {
		return errRecordType
	}
	switch typ := int16(binary.BigEndian.Uint16(r.Key)); typ {
	case 0, 1:
		return fillPair(e, r, "OffsetCommit", &kmsg.OffsetCommitKey{}, &kmsg.OffsetCommitValue{})
	case 2:
		return fillPair(e, r, "GroupMetadata", &kmsg.GroupMetadataKey{}, &kmsg.GroupMetadataValue{})
	default:
		name, ok := groupRecordTypes[typ]
		if !ok {
			return fmt.Errorf("%w: %d", errRecordType, typ)
		}
		e.add("type", name).add("key", document{{"group", leadingString(r.Key[2:])}, {"base64", base64.StdEncoding.EncodeToString(r.Key)}})
		e.add("value", base64OrNil(r.Value))
		return nil
	}
}

// leadingString reads the group's name, which every key of the newer protocols begins with.
func leadingString(b []byte) string {
	if len(b) < 2 {
		return ""
	}
	n := int(binary.BigEndian.Uint16(b))
	if n > len(b)-2 || !utf8.Valid(b[2:2+n]) {
		return ""
	}
	return string(b[2 : 2+n])
}

func base64OrNil(v []byte) *string {
	if v == nil {
		return nil
	}
	s := base64.StdEncoding.EncodeToString(v)
	return &s
}

// fillTransaction decodes a record of __transaction_state.
func fillTransaction(e *entry, r record.Record) error {
	if len(r.Key) < 2 || binary.BigEndian.Uint16(r.Key) != 0 {
		return errRecordType
	}
	return fillPair(e, r, "TransactionLog", &kmsg.TxnMetadataKey{}, &kmsg.TxnMetadataValue{})
}

func fillPair(e *entry, r record.Record, name string, key, value message) error {
	if err := key.ReadFrom(r.Key); err != nil {
		return fmt.Errorf("key of %s: %w", name, err)
	}
	if r.Value == nil {
		e.add("type", name).add("key", plain(key)).add("value", nil)
		return nil
	}
	if err := value.ReadFrom(r.Value); err != nil {
		return fmt.Errorf("value of %s: %w", name, err)
	}
	e.add("type", name).add("version", int16(binary.BigEndian.Uint16(r.Value))).add("key", plain(key)).add("value", plain(value))
	return nil
}

func typeName(v any) string { return reflect.Indirect(reflect.ValueOf(v)).Type().Name() }

// plain turns a record into what JSON shows: fields in order, ids as text, bytes as text
// or base64.
func plain(v any) any { return plainValue(reflect.ValueOf(v)) }

func plainValue(v reflect.Value) any {
	if v.IsValid() && v.CanInterface() {
		switch x := v.Interface().(type) {
		case ids.UUID:
			return x.String()
		case [16]byte:
			return ids.UUID(x).String()
		case []byte:
			text, encoding := encodeBytes(x)
			if encoding != "" {
				return encoding + ":" + *text
			}
			return text
		}
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return plainValue(v.Elem())
	case reflect.Struct:
		return plainStruct(v)
	case reflect.Slice, reflect.Array:
		out := make([]any, v.Len())
		for i := range out {
			out[i] = plainValue(v.Index(i))
		}
		return out
	}
	return v.Interface()
}

func plainStruct(v reflect.Value) document {
	out := document{}
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Name == "UnknownTags" || f.Name == "Version" {
			continue
		}
		out = append(out, field{lowerFirst(f.Name), plainValue(v.Field(i))})
	}
	return out
}

// lowerFirst gives a Go name as JSON writes it: TopicID is topicId, ISR is isr.
func lowerFirst(name string) string {
	if strings.ToUpper(name) == name {
		return strings.ToLower(name)
	}
	name = strings.ReplaceAll(strings.ReplaceAll(name, "IDs", "Ids"), "ID", "Id")
	name = strings.ReplaceAll(strings.ReplaceAll(name, "ISR", "Isr"), "ELR", "Elr")
	return strings.ToLower(name[:1]) + name[1:]
}
