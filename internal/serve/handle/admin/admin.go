package admin

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
	"runnel/internal/serve/forward"
)

// Forwarder asks the active controller in the caller's name.
type Forwarder interface {
	Forward(ctx context.Context, rq *api.Request) (kmsg.Response, error)
}

// Options make an Admin.
type Options struct {
	NodeID    int32
	Forwarder Forwarder
	Image     func() *image.Image
	Layers    func() *config.Layers
	Dirs      Dirs
}

// Admin serves a broker listener's changing APIs.
type Admin struct{ opts Options }

// New makes the handlers.
func New(o Options) *Admin { return &Admin{o} }

// forwarded are the APIs that go to the controller as they came, with the versions of
// Kafka 4.4 (semantics.md 2.1).
var forwarded = []struct {
	key      kmsg.Key
	min, max int16
}{
	{kmsg.CreateTopics, 2, 7}, {kmsg.DeleteTopics, 1, 6}, {kmsg.CreatePartitions, 0, 3},
	{kmsg.ElectLeaders, 0, 2}, {kmsg.AlterPartitionAssignments, 0, 1}, {kmsg.ListPartitionReassignments, 0, 0},
	{kmsg.DescribeQuorum, 0, 2}, {kmsg.UpdateFeatures, 0, 2}, {kmsg.UnregisterBroker, 0, 0},
}

// Forwardable reports the APIs that an Envelope may hold.
func Forwardable(key int16) bool {
	for _, f := range forwarded {
		if int16(f.key) == key {
			return true
		}
	}
	return key == int16(kmsg.AlterConfigs) || key == int16(kmsg.IncrementalAlterConfigs)
}

// Register adds the APIs to a broker listener's registry.
func (a *Admin) Register(r *api.Registry) {
	for _, f := range forwarded {
		r.Add(api.API{Key: int16(f.key), Min: f.min, Max: f.max, Handle: a.forward})
	}
	r.Add(api.API{Key: int16(kmsg.AlterConfigs), Min: 0, Max: 2, Handle: a.alterConfigs})
	r.Add(api.API{Key: int16(kmsg.IncrementalAlterConfigs), Min: 0, Max: 1, Handle: a.incrementalAlterConfigs})
	r.Add(api.API{Key: int16(kmsg.DescribeLogDirs), Min: 1, Max: 5, Handle: a.describeLogDirs})
	r.Add(api.API{Key: int16(kmsg.AlterReplicaLogDirs), Min: 1, Max: 2, Handle: a.alterReplicaLogDirs})
}

func (a *Admin) forward(ctx api.Context, rq *api.Request) api.Reply {
	resp, err := a.opts.Forwarder.Forward(ctx, rq)
	switch {
	case errors.Is(err, forward.ErrUnsupported):
		return api.Reply{Close: err}
	case err != nil:
		return api.Done(Refuse(rq.Body, err))
	}
	return api.Done(resp)
}

// Refuse builds the answer that gives every item of a request the same error.
func Refuse(req kmsg.Request, err error) kmsg.Response {
	code, msg := api.Code(err), api.Message(err)
	switch q := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := q.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, t := range q.Topics {
			o := kmsg.NewCreateTopicsResponseTopic()
			o.Topic, o.ErrorCode, o.ErrorMessage = t.Topic, code, msg
			resp.Topics = append(resp.Topics, o)
		}
		return resp
	case *kmsg.DeleteTopicsRequest:
		resp := q.ResponseKind().(*kmsg.DeleteTopicsResponse)
		for _, t := range q.Topics {
			o := kmsg.NewDeleteTopicsResponseTopic()
			o.Topic, o.TopicID, o.ErrorCode, o.ErrorMessage = t.Topic, t.TopicID, code, msg
			resp.Topics = append(resp.Topics, o)
		}
		for i := range q.TopicNames {
			o := kmsg.NewDeleteTopicsResponseTopic()
			o.Topic, o.ErrorCode, o.ErrorMessage = &q.TopicNames[i], code, msg
			resp.Topics = append(resp.Topics, o)
		}
		return resp
	case *kmsg.CreatePartitionsRequest:
		resp := q.ResponseKind().(*kmsg.CreatePartitionsResponse)
		for _, t := range q.Topics {
			o := kmsg.NewCreatePartitionsResponseTopic()
			o.Topic, o.ErrorCode, o.ErrorMessage = t.Topic, code, msg
			resp.Topics = append(resp.Topics, o)
		}
		return resp
	case *kmsg.ElectLeadersRequest:
		resp := q.ResponseKind().(*kmsg.ElectLeadersResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.AlterPartitionAssignmentsRequest:
		resp := q.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
		resp.ErrorCode, resp.ErrorMessage = code, msg
		return resp
	case *kmsg.ListPartitionReassignmentsRequest:
		resp := q.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
		resp.ErrorCode, resp.ErrorMessage = code, msg
		return resp
	case *kmsg.DescribeQuorumRequest:
		resp := q.ResponseKind().(*kmsg.DescribeQuorumResponse)
		resp.ErrorCode, resp.ErrorMessage = code, msg
		return resp
	case *kmsg.UpdateFeaturesRequest:
		resp := q.ResponseKind().(*kmsg.UpdateFeaturesResponse)
		resp.ErrorCode, resp.ErrorMessage = code, msg
		return resp
	case *kmsg.UnregisterBrokerRequest:
		resp := q.ResponseKind().(*kmsg.UnregisterBrokerResponse)
		resp.ErrorCode, resp.ErrorMessage = code, msg
		return resp
	case *kmsg.AlterConfigsRequest:
		resp := q.ResponseKind().(*kmsg.AlterConfigsResponse)
		for _, r := range q.Resources {
			o := kmsg.NewAlterConfigsResponseResource()
			o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = r.ResourceType, r.ResourceName, code, msg
			resp.Resources = append(resp.Resources, o)
		}
		return resp
	case *kmsg.IncrementalAlterConfigsRequest:
		resp := q.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
		for _, r := range q.Resources {
			o := kmsg.NewIncrementalAlterConfigsResponseResource()
			o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = r.ResourceType, r.ResourceName, code, msg
			resp.Resources = append(resp.Resources, o)
		}
		return resp
	case *kmsg.BrokerRegistrationRequest:
		resp := q.ResponseKind().(*kmsg.BrokerRegistrationResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.BrokerHeartbeatRequest:
		resp := q.ResponseKind().(*kmsg.BrokerHeartbeatResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.ControllerRegistrationRequest:
		resp := q.ResponseKind().(*kmsg.ControllerRegistrationResponse)
		resp.ErrorCode, resp.ErrorMessage = code, msg
		return resp
	case *kmsg.AlterPartitionRequest:
		resp := q.ResponseKind().(*kmsg.AlterPartitionResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.AssignReplicasToDirsRequest:
		resp := q.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
		resp.ErrorCode = code
		return resp
	case *kmsg.AllocateProducerIDsRequest:
		resp := q.ResponseKind().(*kmsg.AllocateProducerIDsResponse)
		resp.ErrorCode = code
		return resp
	}
	panic("admin: no refusal for " + kmsg.NameForKey(req.Key()))
}
