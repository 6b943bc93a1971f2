package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/magiconair/properties"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

// PartitionMetadata is the file that ties a partition's directory to a topic id.
const PartitionMetadata = "partition.metadata"

// WritePartitionMetadata writes the file in place and not durably: it is for a directory
// that holds nothing yet, where a torn file and a missing one mean the same.
func WritePartitionMetadata(f vfs.FS, dir string, topic ids.UUID) error {
	return Write(f, path.Join(dir, PartitionMetadata), []byte("version: 0\ntopic_id: "+topic.String()), false)
}

// SyncPartitionMetadata makes the file durable where it exists.
func SyncPartitionMetadata(f vfs.FS, dir string) error {
	h, err := f.OpenFile(path.Join(dir, PartitionMetadata), vfs.ReadWrite)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = h.Sync()
	if cerr := h.Close(); err == nil {
		err = cerr
	}
	return err
}

// ReadPartitionMetadata gives the topic id; fs.ErrNotExist without the file, ErrFormat
// if it is torn or not one.
func ReadPartitionMetadata(f vfs.FS, dir string) (ids.UUID, error) {
	name := path.Join(dir, PartitionMetadata)
	data, err := vfs.ReadFile(f, name)
	if err != nil {
		return ids.Zero, err
	}
	id, err := parsePartitionMetadata(string(data))
	if err != nil {
		return ids.Zero, fmt.Errorf("%s: %w", name, err)
	}
	return id, nil
}

func parsePartitionMetadata(text string) (ids.UUID, error) {
	var id ids.UUID
	version := false
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok:
			return ids.Zero, fmt.Errorf("%w: line %.40q is not KEY: VALUE", ErrFormat, line)
		case key == "version":
			if v, err := strconv.Atoi(value); err != nil || v < 0 {
				return ids.Zero, fmt.Errorf("%w: version %.20q", ErrFormat, value)
			}
			version = true
		case key == "topic_id":
			u, err := ids.ParseUUID(value)
			if err != nil {
				return ids.Zero, fmt.Errorf("%w: %v", ErrFormat, err)
			}
			id = u
		}
	}
	if !version || id.IsZero() {
		return ids.Zero, fmt.Errorf("%w: version or topic_id is missing", ErrFormat)
	}
	return id, nil
}

// MetaProperties is the identity of a log directory.
type MetaProperties struct {
	Version     int
	ClusterID   string
	NodeID      int32
	DirectoryID ids.UUID // zero if the file has none
}

// MetaFile is its name.
const MetaFile = "meta.properties"

// ReadMeta reads meta.properties; fs.ErrNotExist where the directory is not formatted.
func ReadMeta(f vfs.FS, dir string) (MetaProperties, error) {
	name := path.Join(dir, MetaFile)
	data, err := vfs.ReadFile(f, name)
	if err != nil {
		return MetaProperties{}, err
	}
	m, err := parseMeta(data)
	if err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func parseMeta(data []byte) (m MetaProperties, err error) {
	l := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := l.LoadBytes(data)
	if err != nil {
		return m, fmt.Errorf("%w: %v", ErrFormat, err)
	}
	if m.Version, err = strconv.Atoi(p.GetString("version", "0")); err != nil || m.Version < 0 || m.Version > 1 {
		return m, fmt.Errorf("%w: version=%.20q, want 0 or 1", ErrFormat, p.GetString("version", "0"))
	}
	key := "node.id"
	if m.Version == 0 {
		key = "broker.id"
	}
	node, ok := p.Get(key)
	if !ok && m.Version == 0 {
		node = "-1"
	}
	id, err := strconv.ParseInt(node, 10, 32)
	if err != nil {
		return m, fmt.Errorf("%w: %s=%.20q is not a node id", ErrFormat, key, node)
	}
	m.NodeID = int32(id)
	if m.ClusterID = p.GetString("cluster.id", ""); m.ClusterID == "" && m.Version == 1 {
		return m, fmt.Errorf("%w: cluster.id is missing", ErrFormat)
	}
	if d, ok := p.Get("directory.id"); ok {
		if m.DirectoryID, err = ids.ParseUUID(d); err != nil {
			return m, fmt.Errorf("%w: directory.id: %v", ErrFormat, err)
		}
	}
	return m, nil
}

// WriteMeta replaces meta.properties with version 1.
func WriteMeta(f vfs.FS, dir string, m MetaProperties) error {
	text := "#\ncluster.id=" + escape(m.ClusterID) + "\n"
	if !m.DirectoryID.IsZero() {
		text += "directory.id=" + m.DirectoryID.String() + "\n"
	}
	text += "node.id=" + strconv.Itoa(int(m.NodeID)) + "\nversion=1\n"
	return Replace(f, path.Join(dir, MetaFile), []byte(text))
}

// escape writes a value as Java's property files want it.
func escape(v string) string {
	return strings.NewReplacer(`\`, `\\`, ":", `\:`, "=", `\=`, "#", `\#`, "!", `\!`, "\n", `\n`).Replace(v)
}

// CleanShutdown is the marker of a directory that was stopped cleanly.
const CleanShutdown = ".kafka_cleanshutdown"

// ReadClean says whether the marker is there, and the broker epoch in it, -1 if unknown.
// A marker that cannot be parsed still marks a clean stop.
func ReadClean(f vfs.FS, dir string) (clean bool, brokerEpoch int64, err error) {
	data, err := vfs.ReadFile(f, path.Join(dir, CleanShutdown))
	if errors.Is(err, fs.ErrNotExist) {
		return false, -1, nil
	}
	if err != nil {
		return false, -1, err
	}
	var marker struct {
		BrokerEpoch *int64 `json:"brokerEpoch"`
	}
	if json.Unmarshal(data, &marker) != nil || marker.BrokerEpoch == nil {
		return true, -1, nil
	}
	return true, *marker.BrokerEpoch, nil
}

// WriteClean writes the marker durably.
func WriteClean(f vfs.FS, dir string, brokerEpoch int64) error {
	return Replace(f, path.Join(dir, CleanShutdown), fmt.Appendf(nil, `{"version":0,"brokerEpoch":%d}`, brokerEpoch))
}

// RemoveClean removes the marker durably, before anything in the directory changes: a
// crash from then on must look like one.
func RemoveClean(f vfs.FS, dir string) error {
	if err := f.Remove(path.Join(dir, CleanShutdown)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.SyncDir(dir)
}
