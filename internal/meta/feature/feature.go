package feature

import (
	"fmt"
	"strings"
)

// Names of the features.
const (
	MetadataVersion = "metadata.version"
	KRaftVersion    = "kraft.version"
	Transaction     = "transaction.version"
	Group           = "group.version"
	ELR             = "eligible.leader.replicas.version"
	Share           = "share.version"
	Streams         = "streams.version"
)

// Levels of metadata.version that change what we do.
const (
	MinMetadata             = int16(7)
	Scram                   = int16(11)
	NoEpochBumpOnShrink     = int16(12)
	Transactions            = int16(13)
	DelegationTokens        = int16(14)
	ControllerRegistration  = int16(15)
	DirectoryAssignment     = int16(17)
	ELRRecords              = int16(23)
	Cordoning               = int16(30)
	ControllerUnregistering = int16(33)
	LatestMetadata          = int16(33)
)

// Range is an inclusive range of levels.
type Range struct {
	Name     string
	Min, Max int16
}

// Contains reports whether level is in the range; a feature that is not supported at all
// is the range [0,0].
func (r Range) Contains(level int16) bool { return r.Min <= level && level <= r.Max }

var supported = []Range{
	{MetadataVersion, MinMetadata, LatestMetadata},
	{KRaftVersion, 0, 1},
	{Transaction, 0, 2},
	{Group, 0, 1},
	{ELR, 0, 1},
	{Share, 0, 2},
	{Streams, 0, 1},
}

// Supported is what this server can run at, in a fixed order. Do not modify it.
func Supported() []Range { return supported }

// SupportedRange is the range of one feature; ok is false for a name we do not know.
func SupportedRange(name string) (r Range, ok bool) {
	for _, r := range supported {
		if r.Name == name {
			return r, true
		}
	}
	return Range{Name: name}, false
}

type release struct {
	name    string
	changed bool // a downgrade across it would lose metadata
}

// releases[i] is metadata.version level i+1.
var releases = [...]release{
	{"3.0-IV1", true}, {"3.1-IV0", true}, {"3.2-IV0", true}, {"3.3-IV0", true}, {"3.3-IV1", true}, {"3.3-IV2", true},
	{"3.3-IV3", true}, {"3.4-IV0", true}, {"3.5-IV0", false}, {"3.5-IV1", false}, {"3.5-IV2", true},
	{"3.6-IV0", false}, {"3.6-IV1", true}, {"3.6-IV2", true}, {"3.7-IV0", true}, {"3.7-IV1", false},
	{"3.7-IV2", true}, {"3.7-IV3", false}, {"3.7-IV4", false}, {"3.8-IV0", false}, {"3.9-IV0", false},
	{"4.0-IV0", false}, {"4.0-IV1", true}, {"4.0-IV2", false}, {"4.0-IV3", false}, {"4.1-IV0", false},
	{"4.1-IV1", false}, {"4.2-IV0", false}, {"4.2-IV1", false}, {"4.3-IV0", true}, {"4.4-IV0", false},
	{"4.4-IV1", true}, {"4.4-IV2", true},
}

// MetadataName is the release name of a metadata.version level, such as "4.4-IV2".
func MetadataName(level int16) string {
	if level < 1 || int(level) > len(releases) {
		return fmt.Sprintf("UNKNOWN [%d]", level)
	}
	return releases[level-1].name
}

// ParseMetadata finds the level of "4.4-IV2", or the newest of "4.4" or "4.4.1".
func ParseMetadata(s string) (int16, error) {
	short := s
	if p := strings.SplitN(s, ".", 3); len(p) == 3 && !strings.Contains(s, "-") {
		short = p[0] + "." + p[1]
	}
	for level := int16(len(releases)); level >= MinMetadata; level-- {
		name := releases[level-1].name
		if name == s || strings.HasPrefix(name, short+"-") {
			return level, nil
		}
	}
	return 0, fmt.Errorf("%q is not a metadata version: want %s to %s", s, MetadataName(MinMetadata), MetadataName(LatestMetadata))
}

// LosesMetadata reports whether going down from one metadata.version to another passes a
// level that changed what records hold.
func LosesMetadata(from, to int16) bool {
	for level := from; level > to && level >= 1; level-- {
		if int(level) <= len(releases) && releases[level-1].changed {
			return true
		}
	}
	return false
}

// bootstrap says at which metadata.version a new cluster starts with a level.
var bootstrap = []struct {
	name     string
	level    int16
	metadata int16
}{
	{Transaction, 2, 24}, {Group, 1, 22}, {ELR, 1, 26}, {Share, 1, 28}, {Share, 2, 31}, {Streams, 1, 29},
}

// Bootstrap is the levels a new cluster gets at a metadata.version, without
// metadata.version itself and kraft.version.
func Bootstrap(metadata int16) map[string]int16 {
	levels := map[string]int16{}
	for _, b := range bootstrap {
		if metadata >= b.metadata {
			levels[b.name] = b.level
		}
	}
	return levels
}

// Dependency gives the feature level that another one needs; ok is false for none.
func Dependency(name string, level int16) (needs string, min int16, ok bool) {
	if name == ELR && level >= 1 {
		return MetadataVersion, ELRRecords, true
	}
	return "", 0, false
}
