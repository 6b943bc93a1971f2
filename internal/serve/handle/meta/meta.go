package meta

import (
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

// AutoCreator makes topics that a client asked for; it returns at once.
type AutoCreator interface {
	// AutoCreate creates a topic with the broker's defaults in the caller's name.
	AutoCreate(rq *api.Request, topic string)
	// CreateInternal creates an internal topic with its own configuration.
	CreateInternal(topic string)
}

// Options make a Meta.
type Options struct {
	NodeID        int32
	ClusterID     string
	Controller    bool // serves a controller listener
	Image         func() *image.Image
	Layers        func() *config.Layers
	Registry      *api.Registry
	Features      func() []feature.Range // supported levels
	KRaftVersion  func() int16           // finalized
	AutoCreate    AutoCreator
	AutoCreateOn  bool // auto.create.topics.enable
	Dialled       bool // runnel.advertise.dialled.address
	PageLimit     int  // max.request.partition.size.limit
	ActiveControl func() int32
}

// Meta serves the reading APIs.
type Meta struct{ opts Options }

// New makes the handlers.
func New(o Options) *Meta { return &Meta{opts: o} }

// RegisterBroker adds the APIs of a broker listener.
func (m *Meta) RegisterBroker(r *api.Registry) {
	m.registerBoth(r)
	r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: m.metadata})
	r.Add(api.API{Key: int16(kmsg.DescribeTopicPartitions), Min: 0, Max: 0, Handle: m.describeTopicPartitions})
	r.Add(api.API{Key: int16(kmsg.ListConfigResources), Min: 0, Max: 1, Handle: m.listConfigResources})
	r.Add(api.API{Key: int16(kmsg.FindCoordinator), Min: 0, Max: 6, Handle: m.findCoordinator})
}

// RegisterController adds the APIs of a controller listener.
func (m *Meta) RegisterController(r *api.Registry) { m.registerBoth(r) }

func (m *Meta) registerBoth(r *api.Registry) {
	r.Add(api.API{Key: int16(kmsg.ApiVersions), Min: 0, Max: 5, Handle: m.apiVersions, Unsupported: m.apiVersionsUnsupported})
	r.Add(api.API{Key: int16(kmsg.DescribeCluster), Min: 0, Max: 2, Handle: m.describeCluster})
	r.Add(api.API{Key: int16(kmsg.DescribeConfigs), Min: 1, Max: 4, Handle: m.describeConfigs})
}

// address is where a broker is reached on the listener that a request came in on; for
// this broker itself it may be the address that the client dialled.
func (m *Meta) address(rq *api.Request, b *image.Broker) (host string, port int32, ok bool) {
	e, ok := b.Endpoint(rq.Listener)
	if !ok {
		return "", -1, false
	}
	if m.opts.Dialled && b.ID == m.opts.NodeID && rq.Dialled != "" {
		if h, p, err := net.SplitHostPort(rq.Dialled); err == nil {
			if n, err := strconv.ParseUint(p, 10, 16); err == nil {
				return h, int32(n), true
			}
		}
	}
	return e.Host, int32(e.Port), true
}

// Bit fields of the operations that an authorized caller has; without an authorizer that
// is everyone and all of them. Spec: semantics.md 15.1.
const (
	notAsked   = -2147483648
	topicOps   = 1<<3 | 1<<4 | 1<<5 | 1<<6 | 1<<7 | 1<<8 | 1<<10 | 1<<11
	clusterOps = 1<<5 | 1<<7 | 1<<8 | 1<<9 | 1<<10 | 1<<11 | 1<<12
)
