package meta

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

// describeTopicPartitions serves DescribeTopicPartitions v0 (KIP-966): topics by name, in
// pages. Spec: semantics.md 8.
func (m *Meta) describeTopicPartitions(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DescribeTopicPartitionsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	img := m.opts.Image()
	all := len(req.Topics) == 0
	names := topicNames(req, img)
	first := int32(0)
	if c := req.Cursor; c != nil {
		if c.Partition < 0 || !all && !slices.Contains(names, c.Topic) {
			for _, t := range req.Topics {
				out := kmsg.NewDescribeTopicPartitionsResponseTopic()
				out.Topic, out.ErrorCode = kmsg.StringPtr(t.Topic), kerr.InvalidRequest.Code
				resp.Topics = append(resp.Topics, out)
			}
			return api.Done(resp)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return n < c.Topic })
		if len(names) > 0 && names[0] == c.Topic {
			first = c.Partition
		}
	}
	left := max(1, min(int(req.ResponsePartitionLimit), m.opts.PageLimit))
	for _, name := range names {
		if left == 0 {
			resp.NextCursor = cursor(name, 0)
			break
		}
		t := img.Topic(name)
		if t == nil {
			resp.Topics = append(resp.Topics, unknownTopic(name))
			continue
		}
		out, next := m.page(rq, img, t, first, left)
		first = 0
		resp.Topics = append(resp.Topics, out)
		left -= len(out.Partitions)
		if next > 0 {
			resp.NextCursor = cursor(name, next)
			break
		}
	}
	return api.Done(resp)
}

func topicNames(req *kmsg.DescribeTopicPartitionsRequest, img *image.Image) []string {
	var names []string
	if len(req.Topics) == 0 {
		for t := range img.Topics() {
			names = append(names, t.Name)
		}
		return names
	}
	for _, t := range req.Topics {
		names = append(names, t.Topic)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func cursor(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

func unknownTopic(name string) kmsg.DescribeTopicPartitionsResponseTopic {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic = kmsg.StringPtr(name)
	out.ErrorCode, out.AuthorizedOperations = kerr.UnknownTopicOrPartition.Code, topicOps
	if !validName(name) {
		out.ErrorCode = kerr.InvalidTopicException.Code
	}
	return out
}

// page gives up to left partitions from first on, and the next one if some remain.
func (m *Meta) page(rq *api.Request, img *image.Image, t *image.Topic, first int32, left int) (kmsg.DescribeTopicPartitionsResponseTopic, int32) {
	out := kmsg.NewDescribeTopicPartitionsResponseTopic()
	out.Topic, out.TopicID, out.IsInternal, out.AuthorizedOperations = kmsg.StringPtr(t.Name), t.ID, ids.IsInternal(t.Name), topicOps
	end := min(len(t.Partitions), int(first)+left)
	for i := int(first); i < end; i++ {
		p := t.Partitions[i]
		po := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		po.Partition, po.LeaderEpoch = int32(i), p.LeaderEpoch
		po.LeaderID, po.ErrorCode = leader(rq, 6, img, p)
		po.Replicas, po.ISR, po.OfflineReplicas = p.Replicas, inReplicaOrder(p), offline(rq, img, p)
		po.EligibleLeaderReplicas, po.LastKnownELR = notNil(p.ELR), notNil(p.LastKnownELR)
		out.Partitions = append(out.Partitions, po)
	}
	if end < len(t.Partitions) {
		return out, int32(end)
	}
	return out, 0
}

func notNil(list []int32) []int32 {
	if list == nil {
		return []int32{}
	}
	return list
}
