package meta

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

// metadata serves Metadata v0-v13 (KIP-516 topic ids, KIP-430 operations). Spec:
// semantics.md 8.
func (m *Meta) metadata(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.MetadataRequest)
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	if code := badTopics(req); code != 0 {
		return api.Done(refuseMetadata(req, resp, code))
	}
	img := m.opts.Image()
	resp.ClusterID = kmsg.StringPtr(m.opts.ClusterID)
	resp.ControllerID = m.anyBroker(img)
	resp.AuthorizedOperations = notAsked
	if req.IncludeClusterAuthorizedOperations {
		resp.AuthorizedOperations = clusterOps
	}
	for _, b := range img.Brokers() {
		host, port, ok := m.address(rq, b)
		if !ok || b.Fenced {
			continue
		}
		mb := kmsg.NewMetadataResponseBroker()
		mb.NodeID, mb.Host, mb.Port, mb.Rack = b.ID, host, port, b.Rack
		resp.Brokers = append(resp.Brokers, mb)
	}
	switch {
	case req.Topics == nil || req.Version == 0 && len(req.Topics) == 0:
		for t := range img.Topics() {
			resp.Topics = append(resp.Topics, m.topic(rq, req, img, t))
		}
	case slices.ContainsFunc(req.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.TopicID != ids.Zero }):
		m.byID(rq, req, resp, img)
	default:
		m.byName(rq, req, resp, img)
	}
	return api.Done(resp)
}

// badTopics finds what Kafka refuses a whole request for (measured.md 7).
func badTopics(req *kmsg.MetadataRequest) int16 {
	for _, t := range req.Topics {
		switch {
		case req.Version < 12 && req.Version >= 10 && (t.Topic == nil || t.TopicID != ids.Zero):
			return kerr.InvalidRequest.Code
		case t.Topic == nil && t.TopicID == ids.Zero:
			return kerr.UnknownServerError.Code
		}
	}
	return 0
}

func refuseMetadata(req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, code int16) *kmsg.MetadataResponse {
	resp.ControllerID = -1
	resp.ErrorCode = code
	resp.AuthorizedOperations = notAsked
	for _, t := range req.Topics {
		mt := kmsg.NewMetadataResponseTopic()
		mt.ErrorCode, mt.Topic, mt.TopicID, mt.AuthorizedOperations = code, t.Topic, t.TopicID, notAsked
		if mt.Topic == nil && req.Version < 12 {
			mt.Topic = kmsg.StringPtr("")
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

func (m *Meta) byID(rq *api.Request, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, img *image.Image) {
	seen := map[ids.UUID]bool{}
	for _, t := range req.Topics {
		if t.TopicID == ids.Zero || seen[t.TopicID] {
			continue
		}
		seen[t.TopicID] = true
		if topic := img.TopicByID(t.TopicID); topic != nil {
			resp.Topics = append(resp.Topics, m.topic(rq, req, img, topic))
			continue
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.ErrorCode, mt.TopicID, mt.AuthorizedOperations = kerr.UnknownTopicID.Code, t.TopicID, notAsked
		resp.Topics = append(resp.Topics, mt)
	}
}

func (m *Meta) byName(rq *api.Request, req *kmsg.MetadataRequest, resp *kmsg.MetadataResponse, img *image.Image) {
	create := m.opts.AutoCreateOn && (req.Version < 4 || req.AllowAutoTopicCreation)
	seen := map[string]bool{}
	for _, t := range req.Topics {
		name := *t.Topic
		if seen[name] {
			continue
		}
		seen[name] = true
		if topic := img.Topic(name); topic != nil {
			resp.Topics = append(resp.Topics, m.topic(rq, req, img, topic))
			continue
		}
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.AuthorizedOperations, mt.IsInternal = kmsg.StringPtr(name), notAsked, ids.IsInternal(name)
		mt.ErrorCode = kerr.UnknownTopicOrPartition.Code
		if !validName(name) {
			mt.ErrorCode = kerr.InvalidTopicException.Code
		} else if create {
			if ids.IsInternal(name) {
				m.opts.AutoCreate.CreateInternal(name)
			} else {
				m.opts.AutoCreate.AutoCreate(rq, name)
			}
		}
		resp.Topics = append(resp.Topics, mt)
	}
}

func validName(s string) bool { return ids.ValidTopic(s) }

func (m *Meta) topic(rq *api.Request, req *kmsg.MetadataRequest, img *image.Image, t *image.Topic) kmsg.MetadataResponseTopic {
	mt := kmsg.NewMetadataResponseTopic()
	mt.Topic, mt.TopicID, mt.IsInternal, mt.AuthorizedOperations = kmsg.StringPtr(t.Name), t.ID, ids.IsInternal(t.Name), notAsked
	if req.IncludeTopicAuthorizedOperations {
		mt.AuthorizedOperations = topicOps
	}
	mt.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(t.Partitions))
	for i, p := range t.Partitions {
		mp := &mt.Partitions[i]
		*mp = kmsg.NewMetadataResponseTopicPartition()
		mp.Partition, mp.LeaderEpoch = int32(i), p.LeaderEpoch
		mp.Leader, mp.ErrorCode = leader(rq, req.Version, img, p)
		mp.Replicas, mp.ISR, mp.OfflineReplicas = p.Replicas, inReplicaOrder(p), offline(rq, img, p)
		if req.Version == 0 {
			live := func(list []int32) []int32 {
				return slices.DeleteFunc(slices.Clone(list), func(id int32) bool { return slices.Contains(mp.OfflineReplicas, id) })
			}
			if len(mp.OfflineReplicas) > 0 && mp.ErrorCode == 0 {
				mp.ErrorCode = kerr.ReplicaNotAvailable.Code
			}
			mp.Replicas, mp.ISR = live(mp.Replicas), live(mp.ISR)
		}
	}
	return mt
}

// inReplicaOrder lists the ISR in the order of the assignment (measured.md 20).
func inReplicaOrder(p *image.Partition) []int32 {
	if len(p.ISR) <= 1 {
		return p.ISR
	}
	out := make([]int32, 0, len(p.ISR))
	for _, id := range p.Replicas {
		if slices.Contains(p.ISR, id) {
			out = append(out, id)
		}
	}
	return out
}

func leader(rq *api.Request, version int16, img *image.Image, p *image.Partition) (id int32, code int16) {
	b := img.Broker(p.Leader)
	if b == nil {
		return -1, kerr.LeaderNotAvailable.Code
	}
	if _, ok := b.Endpoint(rq.Listener); !ok {
		if version >= 6 {
			return -1, kerr.ListenerNotFound.Code
		}
		return -1, kerr.LeaderNotAvailable.Code
	}
	return p.Leader, 0
}

func offline(rq *api.Request, img *image.Image, p *image.Partition) []int32 {
	var out []int32
	for i, id := range p.Replicas {
		b := img.Broker(id)
		online := b != nil && !b.Fenced
		if online {
			_, online = b.Endpoint(rq.Listener)
		}
		if online && i < len(p.Directories) {
			online = b.HasOnlineDir(p.Directories[i])
		}
		if !online {
			out = append(out, id)
		}
	}
	return out
}

// anyBroker is the broker named as controller: clients may send admin requests to any,
// and the one that answers is as good as another and reachable for sure.
func (m *Meta) anyBroker(img *image.Image) int32 {
	if b := img.Broker(m.opts.NodeID); b != nil && !b.Fenced {
		return b.ID
	}
	for _, b := range img.Brokers() {
		if !b.Fenced {
			return b.ID
		}
	}
	return -1
}
