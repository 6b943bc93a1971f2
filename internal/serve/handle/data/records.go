package data

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/serve/api"
)

// offsetForLeaderEpoch serves OffsetForLeaderEpoch v2-v4 (KIP-101, KIP-320). Spec:
// semantics.md 9.
func (d *Data) offsetForLeaderEpoch(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.OffsetForLeaderEpochRequest)
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	img := d.opts.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewOffsetForLeaderEpochResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			po := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			po.Partition, po.LeaderEpoch, po.EndOffset = p.Partition, -1, -1
			replica, err := d.find(img, t.Topic, p.Partition)
			if err == nil {
				po.LeaderEpoch, po.EndOffset, err = replica.EpochEnd(p.LeaderEpoch, p.CurrentLeaderEpoch)
			}
			po.ErrorCode = api.Code(err)
			out.Partitions = append(out.Partitions, po)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return api.Done(resp)
}

// deleteRecords serves DeleteRecords v0-v2 (KIP-107). Spec: semantics.md 10.
func (d *Data) deleteRecords(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DeleteRecordsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	img := d.opts.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDeleteRecordsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			po := kmsg.NewDeleteRecordsResponseTopicPartition()
			po.Partition, po.LowWatermark = p.Partition, -1
			replica, err := d.find(img, t.Topic, p.Partition)
			if err == nil && ids.IsInternal(t.Topic) {
				err = fmt.Errorf("topic %s is internal: %w", t.Topic, kerr.InvalidTopicException)
			}
			if err == nil {
				po.LowWatermark, err = replica.DeleteRecords(p.Offset)
			}
			po.ErrorCode = api.Code(err)
			out.Partitions = append(out.Partitions, po)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return api.Done(resp)
}

// describeProducers serves DescribeProducers v0 (KIP-664).
func (d *Data) describeProducers(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	img := d.opts.Image()
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewDescribeProducersResponseTopic()
		out.Topic = t.Topic
		for _, index := range t.Partitions {
			po := kmsg.NewDescribeProducersResponseTopicPartition()
			po.Partition = index
			replica, err := d.find(img, t.Topic, index)
			if err == nil {
				err = fillProducers(&po, replica)
			}
			if err != nil && !ids.ValidTopic(t.Topic) {
				err = kerr.InvalidTopicException
			}
			if po.ErrorCode = api.Code(err); err != nil {
				po.ErrorMessage = kmsg.StringPtr(err.Error())
			}
			out.Partitions = append(out.Partitions, po)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return api.Done(resp)
}

// initProducerID serves InitProducerId v0-v5 for idempotent producers (KIP-98, KIP-360).
// A transactional id needs a transaction coordinator, of which FindCoordinator says that
// there is none.
func (d *Data) initProducerID(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	err := error(nil)
	switch {
	case req.TransactionalID != nil && *req.TransactionalID == "":
		err = kerr.InvalidRequest
	case (req.ProducerID >= 0) != (req.ProducerEpoch >= 0) && req.Version >= 3:
		err = kerr.InvalidRequest
	case req.TransactionalID != nil:
		err = kerr.NotCoordinator
	default:
		resp.ProducerID, err = d.opts.ProducerIDs.Next(ctx)
		if err == nil {
			resp.ProducerEpoch = 0
		} else {
			resp.ProducerID = -1
		}
	}
	resp.ErrorCode = api.Code(err)
	return api.Done(resp)
}
