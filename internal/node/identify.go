package node

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/format"
	"runnel/internal/meta/metarec"
	"runnel/internal/meta/quorum"
	"runnel/internal/store/checkpoint"
	"runnel/internal/store/logstore"
)

// identify gives the cluster id of the directories, after formatting those that are new.
// A node that is its quorum's only voter may draw an id; any other must be told, since
// all nodes of a cluster have to agree.
func (n *Node) identify() (string, error) {
	known, fresh, err := n.readIdentity()
	if err != nil {
		return "", err
	}
	id := n.conf.ClusterID
	switch {
	case known != "" && id != "" && known != id:
		return "", fmt.Errorf("cluster.id=%s, but the log directories belong to cluster %s; point log.dirs elsewhere or drop the key", id, known)
	case known != "":
		id = known
	case id == "" && !n.conf.OnlyVoter():
		return "", fmt.Errorf("the log directories are empty and cluster.id is not set: give every node of the cluster the same cluster.id, or format the directories with `runnel format`")
	case id == "":
		id = uuid(n.random.next).String()
	}
	if len(fresh) == 0 {
		return id, nil
	}
	o := format.Options{
		ClusterID: id, NodeID: n.conf.NodeID, LogDirs: n.conf.LogDirs, MetadataDir: n.conf.MetadataDir, Controller: n.conf.Controller,
		SkipFormatted: true, Now: n.opts.Now(), Random: n.fill,
	}
	if len(n.conf.Voters) == 0 {
		o.KRaftVersion = 1
		if n.conf.OnlyVoter() {
			o.Standalone = n.controllerEndpoints()
		}
	}
	if _, err := format.Node(n.opts.FS, o); err != nil {
		return "", err
	}
	n.opts.Log.Info("formatted", "dirs", strings.Join(fresh, ","), "cluster.id", id, "node.id", n.conf.NodeID)
	return id, nil
}

// readIdentity reads what is there, refusing directories of another node or a newer
// version.
func (n *Node) readIdentity() (clusterID string, fresh []string, err error) {
	dirs := n.conf.LogDirs
	if n.conf.MetadataDir != "" && !slices.Contains(dirs, n.conf.MetadataDir) {
		dirs = append(append([]string{}, dirs...), n.conf.MetadataDir)
	}
	for _, d := range dirs {
		if err := n.opts.FS.MkdirAll(d); err != nil {
			return "", nil, fmt.Errorf("log.dirs: directory %s cannot be made: %w", d, err)
		}
		m, err := logstore.ReadMeta(n.opts.FS, d)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			fresh = append(fresh, d)
			continue
		case err != nil:
			return "", nil, fmt.Errorf("directory %s: %w", d, err)
		}
		if err := n.mine(d, m); err != nil {
			return "", nil, err
		}
		if clusterID != "" && m.ClusterID != clusterID {
			return "", nil, fmt.Errorf("directory %s belongs to cluster %s, others to %s; log.dirs mixes two clusters", d, m.ClusterID, clusterID)
		}
		clusterID = m.ClusterID
	}
	return clusterID, fresh, nil
}

// readBootstrap is what the directories were formatted to start a new cluster with; nil
// leaves it to the controller.
func (n *Node) readBootstrap() ([]metarec.Record, error) {
	values, err := quorum.ReadBootstrap(n.opts.FS, n.store.MetadataDir(), path.Join(n.store.MetadataDir(), ids.MetadataTopic+"-0"))
	if err != nil {
		return nil, fmt.Errorf("reading what the directories were formatted with: %w", err)
	}
	var out []metarec.Record
	for _, v := range values {
		r, _, err := metarec.Decode(v)
		if err != nil {
			return nil, fmt.Errorf("reading what the directories were formatted with: %w", err)
		}
		out = append(out, r)
	}
	return out, nil
}

func (n *Node) mine(dir string, m checkpoint.MetaProperties) error {
	if m.NodeID != n.conf.NodeID {
		return fmt.Errorf("node.id=%d, but directory %s belongs to node %d; set node.id=%d or point log.dirs elsewhere", n.conf.NodeID, dir, m.NodeID, m.NodeID)
	}
	return nil
}

func (n *Node) fill(b []byte) {
	var word [8]byte
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(word[:], n.random.next())
		copy(b[i:], word[:])
	}
}
