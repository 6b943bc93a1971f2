package cluster

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/controller"
	"runnel/internal/meta/quorum"
	"runnel/internal/serve/api"
	"runnel/internal/serve/forward"
	"runnel/internal/serve/handle/admin"
)

// Controller decides for the cluster.
type Controller interface {
	Handle(ctx context.Context, rq controller.Request) (kmsg.Response, error)
}

// Quorum answers the raft requests.
type Quorum interface {
	Handle(ctx context.Context, rq kmsg.Request) (kmsg.Response, error)
}

// Cluster serves a controller listener.
type Cluster struct {
	controller Controller
	quorum     Quorum
}

// New makes the handlers.
func New(c Controller, q Quorum) *Cluster { return &Cluster{c, q} }

type served struct {
	key      kmsg.Key
	min, max int16
}

// decided are answered by the active controller, raft by the quorum.
var decided = []served{
	{kmsg.CreateTopics, 2, 7}, {kmsg.DeleteTopics, 1, 6}, {kmsg.CreatePartitions, 0, 3}, {kmsg.AlterConfigs, 0, 2},
	{kmsg.IncrementalAlterConfigs, 0, 1}, {kmsg.ElectLeaders, 0, 2}, {kmsg.AlterPartitionAssignments, 0, 1},
	{kmsg.ListPartitionReassignments, 0, 0}, {kmsg.UpdateFeatures, 0, 2}, {kmsg.UnregisterBroker, 0, 0},
	{kmsg.BrokerRegistration, 0, 4}, {kmsg.BrokerHeartbeat, 0, 2}, {kmsg.ControllerRegistration, 0, 0},
	{kmsg.AlterPartition, 2, 3}, {kmsg.AssignReplicasToDirs, 0, 0}, {kmsg.AllocateProducerIDs, 0, 0},
}

var raft = []served{
	{kmsg.Fetch, 4, 18}, {kmsg.FetchSnapshot, 0, 1}, {kmsg.DescribeQuorum, 0, 2},
	{kmsg.Vote, 0, 2}, {kmsg.BeginQuorumEpoch, 0, 1}, {kmsg.EndQuorumEpoch, 0, 1},
}

// Register adds the APIs to a controller listener's registry.
func (c *Cluster) Register(r *api.Registry) {
	for _, s := range decided {
		r.Add(api.API{Key: int16(s.key), Min: s.min, Max: s.max, Handle: c.decide})
	}
	for _, s := range raft {
		r.Add(api.API{Key: int16(s.key), Min: s.min, Max: s.max, Handle: c.raft})
	}
	r.Add(api.API{Key: int16(kmsg.Envelope), Min: 0, Max: 0, Handle: forward.Open(r, admin.Forwardable)})
}

func (c *Cluster) decide(ctx api.Context, rq *api.Request) api.Reply {
	resp, err := c.controller.Handle(ctx, controller.Request{
		Principal: rq.Principal, ClientID: rq.ClientID, Host: rq.Host, Listener: rq.Listener, Forwarded: rq.Forwarded, Body: rq.Body,
	})
	switch {
	case err != nil && rq.Forwarded:
		return api.Reply{Close: err} // the Envelope says it
	case err != nil:
		return api.Done(admin.Refuse(rq.Body, err))
	}
	return api.Done(resp)
}

func (c *Cluster) raft(ctx api.Context, rq *api.Request) api.Reply {
	resp, err := c.quorum.Handle(quorum.OnListener(ctx, rq.Listener), rq.Body)
	if err != nil {
		return api.Reply{Close: err}
	}
	return api.Done(resp)
}
