package meta

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/group"
	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

// Coordinator types of FindCoordinator.
const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
	coordinatorShare       = 2
)

// findCoordinator serves FindCoordinator v0-v6 (KIP-699). Spec: semantics.md 11.
func (m *Meta) findCoordinator(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	keys := req.CoordinatorKeys
	if req.Version < 4 {
		keys = []string{req.CoordinatorKey}
	}
	img := m.opts.Image()
	for _, k := range keys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Port, c.ErrorMessage = k, -1, -1, kmsg.StringPtr("")
		if err := m.locate(rq, img, req.CoordinatorType, k, &c); err != nil {
			c.ErrorCode = api.Code(err)
			if msg := api.Message(err); msg != nil {
				c.ErrorMessage = msg
			}
		}
		if req.Version < 4 {
			resp.ErrorCode, resp.ErrorMessage, resp.NodeID, resp.Host, resp.Port = c.ErrorCode, c.ErrorMessage, c.NodeID, c.Host, c.Port
			break
		}
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return api.Done(resp)
}

func (m *Meta) locate(rq *api.Request, img *image.Image, typ int8, key string, out *kmsg.FindCoordinatorResponseCoordinator) error {
	switch typ {
	case coordinatorGroup:
	case coordinatorTransaction:
		return fmt.Errorf("transactions are not part of this version: %w", kerr.InvalidRequest)
	case coordinatorShare:
		return fmt.Errorf("share groups are not part of this version: %w", kerr.InvalidRequest)
	default:
		return fmt.Errorf("coordinator type %d is not known: %w", typ, kerr.InvalidRequest)
	}
	t := img.Topic(ids.ConsumerOffsetsTopic)
	if t == nil {
		m.opts.AutoCreate.CreateInternal(ids.ConsumerOffsetsTopic)
		return kerr.CoordinatorNotAvailable
	}
	p := t.Partition(group.PartitionFor(key, int32(len(t.Partitions))))
	if p == nil {
		return kerr.CoordinatorNotAvailable
	}
	b := img.Broker(p.Leader)
	if b == nil || b.Fenced {
		return kerr.CoordinatorNotAvailable
	}
	host, port, ok := m.address(rq, b)
	if !ok {
		return kerr.CoordinatorNotAvailable
	}
	out.NodeID, out.Host, out.Port = b.ID, host, port
	return nil
}
