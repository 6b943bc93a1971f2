package meta

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/serve/api"
)

const (
	endpointBroker     = 1
	endpointController = 2
)

// describeCluster serves DescribeCluster v0-v2 (KIP-700, KIP-919, KIP-1073). Spec:
// semantics.md 8.
func (m *Meta) describeCluster(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.ClusterID, resp.ControllerID, resp.ClusterAuthorizedOperations = m.opts.ClusterID, -1, notAsked
	want := req.EndpointType
	if req.Version == 0 {
		want = endpointBroker
	}
	resp.EndpointType = want
	serves := int8(endpointBroker)
	if m.opts.Controller {
		serves = endpointController
	}
	if want != serves {
		err := kerr.MismatchedEndpointType
		switch {
		case req.Version == 0:
			err = kerr.InvalidRequest
		case want != endpointBroker && want != endpointController:
			err = kerr.UnsupportedEndpointType
		}
		resp.ErrorCode, resp.ErrorMessage = err.Code, kmsg.StringPtr(err.Description)
		resp.ClusterID, resp.EndpointType = "", endpointBroker
		return api.Done(resp)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOps
	}
	if m.opts.Controller {
		m.controllers(rq, resp)
	} else {
		m.brokers(rq, req, resp)
	}
	return api.Done(resp)
}

func (m *Meta) brokers(rq *api.Request, req *kmsg.DescribeClusterRequest, resp *kmsg.DescribeClusterResponse) {
	img := m.opts.Image()
	resp.ControllerID = m.anyBroker(img)
	for _, b := range img.Brokers() {
		host, port, ok := m.address(rq, b)
		if !ok || b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		out := kmsg.NewDescribeClusterResponseBroker()
		out.NodeID, out.Host, out.Port, out.Rack, out.IsFenced = b.ID, host, port, b.Rack, b.Fenced
		resp.Brokers = append(resp.Brokers, out)
	}
}

func (m *Meta) controllers(rq *api.Request, resp *kmsg.DescribeClusterResponse) {
	active := m.opts.ActiveControl()
	for _, c := range m.opts.Image().Controllers() {
		for _, e := range c.Endpoints {
			if e.Name != rq.Listener {
				continue
			}
			out := kmsg.NewDescribeClusterResponseBroker()
			out.NodeID, out.Host, out.Port = c.ID, e.Host, int32(e.Port)
			resp.Brokers = append(resp.Brokers, out)
			if c.ID == active {
				resp.ControllerID = active
			}
		}
	}
}
