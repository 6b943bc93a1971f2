package controller

import (
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// MaxRecords bounds the records, and the partitions, of one user request.
const MaxRecords = 10000

// Log is the metadata log as the controller needs it.
type Log interface {
	// Append adds records as one batch in the given epoch. done is called once, from any
	// goroutine, in order of the appends: with nil when the batch is committed, with an error when it is lost.
	// An error of Append itself means that nothing was appended and done will not be called.
	Append(epoch int32, records [][]byte, done func(error)) (lastOffset int64, err error)
}

// Options configures a Controller. Func fields that are nil allow everything or know
// nothing.
type Options struct {
	NodeID    int32
	ClusterID string
	Log       Log
	Now       func() time.Time
	Random    func() uint64
	Logger    *slog.Logger

	// Bootstrap is what a new cluster starts with; nil gives BootstrapRecords at the latest level.
	Bootstrap []metarec.Record

	NumPartitions            int32         // num.partitions
	ReplicationFactor        int16         // default.replication.factor
	MinISR                   int           // min.insync.replicas of the static configuration
	UncleanElection          bool          // unclean.leader.election.enable of the static configuration
	DisableTopicDeletion     bool          // delete.topic.enable=false
	SessionTimeout           time.Duration // broker.session.timeout.ms
	RebalanceInterval        time.Duration // leader.imbalance.check.interval.seconds
	DisableLeaderRebalancing bool          // auto.leader.rebalance.enable=false

	// ValidateTopic checks the whole set of a topic's stored configs; likewise the others.
	ValidateTopic         func(configs map[string]string) error
	ValidateBroker        func(name string, configs map[string]string) error
	ValidateGroup         func(configs map[string]string) error
	ValidateClientMetrics func(configs map[string]string) error
	// ListKey reports configs whose value is a list, Default a config's value without any stored one.
	ListKey func(typ int8, name string) bool
	Default func(typ int8, name string) (string, bool)
	// EffectiveTopicConfigs fills the Configs of a CreateTopics response. img lets it see the brokers' dynamic configs.
	EffectiveTopicConfigs func(img *image.Image, overrides map[string]string) []kmsg.CreateTopicsResponseTopicConfig
	// Authorize is asked in the place that Kafka asks; resource types and operations are those of ACLs.
	Authorize func(rq *Request, operation, resourceType int8, name string) bool
	// QuorumVoters are the ids of the voters, which must be registered before a feature may rise.
	QuorumVoters func() []int32
	// KRaftVersion changes the finalized kraft.version, which the quorum keeps; nil refuses.
	KRaftVersion func(level int16, validateOnly bool) error
	// Fatal is told of a broken invariant between log and image; the node stops.
	Fatal func(error)
	// Leading is told when the controller starts and stops to decide.
	Leading func(epoch int32, active bool)
}

// Request is one request as it reaches the controller, from this node or forwarded.
type Request struct {
	Principal, ClientID, Host, Listener string

	Forwarded bool
	Deadline  time.Time // zero for none
	Body      kmsg.Request
}

// ACL operations and resource types that decisions ask for.
const (
	opCreate          = int8(5)
	opDelete          = int8(6)
	opAlter           = int8(7)
	opDescribe        = int8(8)
	opClusterAction   = int8(9)
	opDescribeConfigs = int8(10)
	opAlterConfigs    = int8(11)

	onTopic   = int8(2)
	onGroup   = int8(3)
	onCluster = int8(4)

	clusterName = "kafka-cluster"
)

func (o Options) withDefaults() Options {
	if o.NumPartitions == 0 {
		o.NumPartitions = 1
	}
	if o.ReplicationFactor == 0 {
		o.ReplicationFactor = 1
	}
	if o.MinISR == 0 {
		o.MinISR = 1
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 9 * time.Second
	}
	if o.RebalanceInterval == 0 {
		o.RebalanceInterval = 300 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
