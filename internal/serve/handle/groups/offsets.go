package groups

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

// offsetCommit serves OffsetCommit v2-v10 (KIP-848 epochs, KIP-516 topic ids). Partitions
// that do not exist are refused here; the rest is the coordinator's.
func (g *Groups) offsetCommit(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.OffsetCommitRequest)
	img := g.image()
	known := *req
	known.Topics = nil
	resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
	for i := range req.Topics {
		t := req.Topics[i]
		topic, code := find(img, req.Version >= 10, t.Topic, t.TopicID)
		if topic != nil {
			t.Topic, t.TopicID = topic.Name, topic.ID
		}
		var good []kmsg.OffsetCommitRequestTopicPartition
		refused := kmsg.NewOffsetCommitResponseTopic()
		refused.Topic, refused.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			if topic.Partition(p.Partition) != nil {
				good = append(good, p)
				continue
			}
			o := kmsg.NewOffsetCommitResponseTopicPartition()
			o.Partition, o.ErrorCode = p.Partition, code
			refused.Partitions = append(refused.Partitions, o)
		}
		if len(refused.Partitions) > 0 {
			resp.Topics = append(resp.Topics, refused)
		}
		if len(good) > 0 {
			t.Partitions = good
			known.Topics = append(known.Topics, t)
		}
	}
	if len(known.Topics) > 0 {
		answer := g.service.OffsetCommit(ctx, &known)
		for _, t := range answer.Topics {
			merge(resp, t)
		}
	}
	return api.Done(resp)
}

// merge adds a topic's answers to those it may have already.
func merge(resp *kmsg.OffsetCommitResponse, t kmsg.OffsetCommitResponseTopic) {
	for i := range resp.Topics {
		if o := &resp.Topics[i]; o.Topic == t.Topic && o.TopicID == t.TopicID {
			o.Partitions = append(o.Partitions, t.Partitions...)
			return
		}
	}
	resp.Topics = append(resp.Topics, t)
}

// find resolves a topic by id (newer versions) or name, with the code that refuses its
// unknown partitions.
func find(img *image.Image, byID bool, name string, id ids.UUID) (*image.Topic, int16) {
	if !byID {
		return img.Topic(name), kerr.UnknownTopicOrPartition.Code
	}
	t := img.TopicByID(id)
	if t == nil {
		return nil, kerr.UnknownTopicID.Code
	}
	return t, kerr.UnknownTopicOrPartition.Code
}

// offsetFetch serves OffsetFetch v1-v10 (KIP-709 batches, KIP-447 stable offsets).
func (g *Groups) offsetFetch(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.OffsetFetchRequest)
	if req.Version < 10 {
		return api.Done(g.service.OffsetFetch(ctx, req))
	}
	img := g.image()
	unknown := make([][]kmsg.OffsetFetchResponseGroupTopic, len(req.Groups))
	for i := range req.Groups {
		grp := &req.Groups[i]
		if grp.Topics == nil {
			continue
		}
		known := []kmsg.OffsetFetchRequestGroupTopic{}
		for _, t := range grp.Topics {
			if topic := img.TopicByID(t.TopicID); topic != nil {
				t.Topic = topic.Name
				known = append(known, t)
				continue
			}
			unknown[i] = append(unknown[i], unknownOffsets(t))
		}
		grp.Topics = known
	}
	resp := g.service.OffsetFetch(ctx, req)
	for i := range resp.Groups {
		out := resp.Groups[i].Topics[:0]
		for _, t := range resp.Groups[i].Topics {
			if topic := img.Topic(t.Topic); topic != nil {
				t.TopicID = topic.ID
				out = append(out, t)
			}
		}
		resp.Groups[i].Topics = append(out, unknown[i]...)
	}
	return api.Done(resp)
}

func unknownOffsets(t kmsg.OffsetFetchRequestGroupTopic) kmsg.OffsetFetchResponseGroupTopic {
	out := kmsg.NewOffsetFetchResponseGroupTopic()
	out.TopicID = t.TopicID
	for _, p := range t.Partitions {
		o := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		o.Partition, o.Offset, o.LeaderEpoch, o.ErrorCode = p, -1, -1, kerr.UnknownTopicID.Code
		o.Metadata = kmsg.StringPtr("")
		out.Partitions = append(out.Partitions, o)
	}
	return out
}

// offsetDelete serves OffsetDelete v0 (KIP-496).
func (g *Groups) offsetDelete(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.OffsetDeleteRequest)
	if req.Group == "" {
		resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return api.Done(resp)
	}
	img := g.image()
	known := *req
	known.Topics = nil
	var refused []kmsg.OffsetDeleteResponseTopic
	for _, t := range req.Topics {
		topic := img.Topic(t.Topic)
		bad := kmsg.NewOffsetDeleteResponseTopic()
		bad.Topic = t.Topic
		var good []kmsg.OffsetDeleteRequestTopicPartition
		for _, p := range t.Partitions {
			if topic.Partition(p.Partition) != nil {
				good = append(good, p)
				continue
			}
			o := kmsg.NewOffsetDeleteResponseTopicPartition()
			o.Partition, o.ErrorCode = p.Partition, kerr.UnknownTopicOrPartition.Code
			bad.Partitions = append(bad.Partitions, o)
		}
		if len(bad.Partitions) > 0 {
			refused = append(refused, bad)
		}
		if len(good) > 0 {
			t.Partitions = good
			known.Topics = append(known.Topics, t)
		}
	}
	resp := g.service.OffsetDelete(ctx, &known)
	if resp.ErrorCode == 0 {
		resp.Topics = append(resp.Topics, refused...)
	}
	return api.Done(resp)
}
