package node

import (
	"runnel/internal/meta/image"
	"runnel/internal/repl/partition"
	"runnel/internal/serve/server"
	"runnel/internal/store/logstore"
)

// Report says what the start found.
type Report struct {
	ClusterID, Controller          string
	Logs                           int
	RecoveredBytes, TruncatedBytes int64
}

// Report says what the start found.
func (n *Node) Report() Report {
	r := Report{ClusterID: n.store.ClusterID(), Logs: n.report.Logs, RecoveredBytes: n.report.BytesScanned, TruncatedBytes: n.report.TruncatedBytes}
	if n.conf.Controller {
		r.Controller = n.Addr(n.conf.ControllerListeners[0])
	}
	return r
}

// Bootstrap is where clients connect first: the first broker listener.
func (n *Node) Bootstrap() string {
	for _, b := range n.bound {
		if !n.conf.IsController(b.Name) {
			return b.net.Addr().String()
		}
	}
	return ""
}

// Status is what health checks and metrics read. Every field may be read at any time.
type Status struct {
	NodeID         int32
	BrokerState    int // lifecycle's state; -1 without the broker role
	Fenced         bool
	ActiveControl  bool
	MetadataOffset int64
	MetadataHW     int64
	QuorumEpoch    int32
	QuorumLeader   int32
	Brokers        int
	FencedBrokers  int
	Topics         int
	Leaderless     int // partitions without a leader, in the whole cluster
	Partitions     []*partition.Partition
	Dirs           []logstore.Dir
	Servers        []*server.Server
	FetchSessions  int
	FetchParts     int
}

// Status gathers the present state.
func (n *Node) Status() Status {
	v, img := n.quorum.View(), n.feed.Image()
	s := Status{
		NodeID: n.conf.NodeID, BrokerState: -1, MetadataOffset: img.Offset(), MetadataHW: v.HighWatermark, QuorumEpoch: v.Epoch,
		QuorumLeader: v.Leader, ActiveControl: n.conf.Controller && v.Leader == n.conf.NodeID, Topics: img.TopicCount(),
		Dirs: n.store.Dirs(), Servers: n.servers,
	}
	for _, b := range img.Brokers() {
		s.Brokers++
		if b.Fenced {
			s.FencedBrokers++
			s.Fenced = s.Fenced || b.ID == n.conf.NodeID
		}
	}
	for t := range img.Topics() {
		for _, p := range t.Partitions {
			if p.Leader == image.NoLeader {
				s.Leaderless++
			}
		}
	}
	if n.conf.Broker {
		s.Partitions = n.replicas.All()
		s.FetchSessions, s.FetchParts = n.records.Sessions()
		if life := n.alive.Load(); life != nil {
			s.BrokerState = int(life.State())
		}
	}
	return s
}
