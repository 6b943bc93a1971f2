package logstore

import (
	"encoding/hex"
	"strings"

	"runnel/internal/kit/ids"
)

// Suffixes of partition directories in transition.
const (
	deleteSuffix = "-delete"
	futureSuffix = "-future"
	straySuffix  = "-stray"
)

const maxName = 255

// transitionName is "TOPIC-PARTITION.HEX-suffix"; the topic is cut so that the whole fits
// a file name, except for futures, which have to be read back.
func (s *Store) transitionName(tp ids.TopicPartition, suffix string) string {
	id := s.newID()
	tail := "." + hex.EncodeToString(id[:]) + suffix
	name := tp.String()
	if suffix != futureSuffix && len(name)+len(tail) > maxName {
		cut := len(name) + len(tail) - maxName
		part := name[len(tp.Topic):]
		name = tp.Topic[:len(tp.Topic)-cut] + part
	}
	return name + tail
}

func (s *Store) newID() ids.UUID {
	return ids.NewUUID(func(p []byte) {
		for i := 0; i < len(p); i += 8 {
			v := s.o.Random()
			for j := i; j < min(i+8, len(p)); j++ {
				p[j], v = byte(v), v>>8
			}
		}
	})
}

// kind says what a directory's name makes of it.
type kind int

const (
	live kind = iota
	future
	deleting
	stray
	foreign // not a partition's
)

func parseDir(name string) (ids.TopicPartition, kind, error) {
	if name == "remote-log-index-cache" || name == ids.MetadataTopic+"-0" || strings.HasPrefix(name, ".") || name == "lost+found" {
		return ids.TopicPartition{}, foreign, nil
	}
	k := live
	for suffix, is := range map[string]kind{deleteSuffix: deleting, futureSuffix: future, straySuffix: stray} {
		if strings.HasSuffix(name, suffix) {
			if i := strings.LastIndexByte(name, '.'); i > 0 {
				k, name = is, name[:i]
			}
			break
		}
	}
	tp, err := ids.ParseDirName(name)
	return tp, k, err
}
