package format

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
	"time"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
	"runnel/internal/meta/quorum"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/logstore"
)

// Options say what to make of a node's directories.
type Options struct {
	ClusterID   string
	NodeID      int32
	LogDirs     []string
	MetadataDir string // may be one of LogDirs
	// Controller nodes get the checkpoint; a broker alone learns everything from them.
	Controller bool
	// KRaftVersion is 0 with static voters (controller.quorum.voters), else 1.
	KRaftVersion int16
	// Standalone makes this node the only voter, with these endpoints.
	Standalone []quorum.Endpoint
	// Voters are the initial controllers. The entry of this node, if any, decides the
	// metadata directory's id.
	Voters quorum.VoterSet
	// MetadataVersion is the level to start at; 0 is the latest.
	MetadataVersion int16
	// Features override the levels that come with MetadataVersion; level 0 turns one off.
	Features map[string]int16
	// Extra records follow the feature levels (SCRAM credentials).
	Extra []metarec.Record
	// SkipFormatted leaves formatted directories alone instead of refusing.
	SkipFormatted bool
	Now           time.Time
	Random        func([]byte)
}

// Result says what was done.
type Result struct {
	Formatted, Skipped []string
	Records            []metarec.Record // what a new cluster starts with
	Metadata           string           // release name of metadata.version
}

// ErrFormatted is the refusal to format a directory twice.
var ErrFormatted = errors.New("already formatted")

// Node formats every directory of a node that is not formatted yet.
func Node(f vfs.FS, o Options) (Result, error) {
	var res Result
	records, err := o.records()
	if err != nil {
		return res, err
	}
	res.Records = records
	res.Metadata = feature.MetadataName(o.metadataVersion())
	if o.ClusterID == "" {
		return res, errors.New("no cluster id was given")
	}
	todo, skipped, err := o.unformatted(f)
	if err != nil {
		return res, err
	}
	res.Skipped = skipped
	for _, dir := range todo {
		if err := o.directory(f, dir, records); err != nil {
			return res, fmt.Errorf("format %s: %w", dir, err)
		}
		res.Formatted = append(res.Formatted, dir)
	}
	return res, nil
}

// directories lists every directory once, the metadata directory last.
func (o *Options) directories() []string {
	var out []string
	for _, d := range o.LogDirs {
		if path.Clean(d) != path.Clean(o.MetadataDir) && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return append(out, o.MetadataDir)
}

// unformatted checks the directories that have an identity against the one to be given.
func (o *Options) unformatted(f vfs.FS) (todo, skipped []string, err error) {
	for _, dir := range o.directories() {
		m, err := logstore.ReadMeta(f, dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			todo = append(todo, dir)
			continue
		case err != nil:
			return nil, nil, err
		case !o.SkipFormatted:
			return nil, nil, fmt.Errorf("%s is %w: it belongs to node %d of cluster %s", dir, ErrFormatted, m.NodeID, m.ClusterID)
		case m.ClusterID != o.ClusterID:
			return nil, nil, fmt.Errorf("%s belongs to cluster %s, not %s", dir, m.ClusterID, o.ClusterID)
		case m.NodeID != o.NodeID:
			return nil, nil, fmt.Errorf("%s belongs to node %d, not %d", dir, m.NodeID, o.NodeID)
		}
		skipped = append(skipped, dir)
	}
	return todo, skipped, nil
}

func (o *Options) directory(f vfs.FS, dir string, records []metarec.Record) error {
	m := checkpoint.MetaProperties{Version: 1, ClusterID: o.ClusterID, NodeID: o.NodeID, DirectoryID: ids.NewUUID(o.Random)}
	if dir == o.MetadataDir && o.Controller {
		voters, own, err := o.voters(m.DirectoryID)
		if err != nil {
			return err
		}
		m.DirectoryID = own
		var nonce [8]byte
		o.Random(nonce[:])
		logDir := path.Join(dir, ids.TopicPartition{Topic: ids.MetadataTopic}.String())
		err = quorum.Format(f, logDir, o.KRaftVersion, voters, o.values(records), o.Now.UnixMilli(), binary.LittleEndian.Uint64(nonce[:]))
		if err != nil {
			return err
		}
		if err := f.SyncDir(dir); err != nil {
			return err
		}
	}
	return logstore.Format(f, dir, m)
}

// voters gives the voter set for the checkpoint and this node's directory id in it.
func (o *Options) voters(drawn ids.UUID) (quorum.VoterSet, ids.UUID, error) {
	if o.KRaftVersion == 0 {
		return nil, drawn, nil
	}
	if len(o.Standalone) > 0 {
		set, err := quorum.NewVoterSet(quorum.Voter{VoterID: o.NodeID, VoterDirectoryID: drawn, Endpoints: o.Standalone, MaxSupportedVersion: 1})
		return set, drawn, err
	}
	for _, v := range o.Voters {
		if v.VoterID == o.NodeID && !v.VoterDirectoryID.IsZero() {
			return o.Voters, v.VoterDirectoryID, nil
		}
	}
	return o.Voters, drawn, nil
}

func (o *Options) values(records []metarec.Record) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, r := range records {
			if !yield(metarec.Encode(r, metarec.VersionFor(r, o.metadataVersion()))) {
				return
			}
		}
	}
}

func (o *Options) metadataVersion() int16 {
	if o.MetadataVersion == 0 {
		return feature.LatestMetadata
	}
	return o.MetadataVersion
}

// records are the levels a new cluster starts with: metadata.version, then the others by
// name, never kraft.version, which is a control record.
func (o *Options) records() ([]metarec.Record, error) {
	metadata := o.metadataVersion()
	if r, _ := feature.SupportedRange(feature.MetadataVersion); !r.Contains(metadata) {
		return nil, fmt.Errorf("metadata.version %d is not one of %d to %d", metadata, r.Min, r.Max)
	}
	levels := feature.Bootstrap(metadata)
	for name, level := range o.Features {
		if name == feature.MetadataVersion || name == feature.KRaftVersion {
			return nil, fmt.Errorf("feature %s has an option of its own", name)
		}
		r, ok := feature.SupportedRange(name)
		if !ok {
			return nil, fmt.Errorf("feature %q is not known; known are %s", name, knownFeatures())
		}
		if !r.Contains(level) {
			return nil, fmt.Errorf("feature %s=%d: the level must be %d to %d", name, level, r.Min, r.Max)
		}
		levels[name] = level
	}
	out := []metarec.Record{&metarec.FeatureLevel{Name: feature.MetadataVersion, FeatureLevel: metadata}}
	for _, name := range slices.Sorted(maps.Keys(levels)) {
		if levels[name] == 0 {
			continue
		}
		if needs, least, ok := feature.Dependency(name, levels[name]); ok && needs == feature.MetadataVersion && metadata < least {
			return nil, fmt.Errorf("feature %s=%d needs metadata.version %s", name, levels[name], feature.MetadataName(least))
		}
		out = append(out, &metarec.FeatureLevel{Name: name, FeatureLevel: levels[name]})
	}
	return append(out, o.Extra...), nil
}

func knownFeatures() string {
	var out string
	for _, r := range feature.Supported() {
		if r.Name == feature.MetadataVersion || r.Name == feature.KRaftVersion {
			continue
		}
		if out != "" {
			out += ", "
		}
		out += r.Name
	}
	return out
}
