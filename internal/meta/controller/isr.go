package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
)

// alterPartition serves AlterPartition (metadata-records.md §7), the checks in the order
// given there.
func (c *core) alterPartition(rq *Request, body *kmsg.AlterPartitionRequest) result {
	resp := body.ResponseKind().(*kmsg.AlterPartitionResponse)
	res := result{response: resp}
	if !c.onCluster(rq, opClusterAction) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return res
	}
	if _, err := c.checkEpoch(body.BrokerID, body.BrokerEpoch); err != nil {
		resp.ErrorCode = err.code()
		return res
	}
	done := map[partitionKey]bool{}
	for _, rt := range body.Topics {
		out := kmsg.NewAlterPartitionResponseTopic()
		out.TopidID = rt.TopicID
		t := c.img.TopicByID(rt.TopicID)
		for i := range rt.Partitions {
			rp := &rt.Partitions[i]
			op := kmsg.NewAlterPartitionResponseTopicPartition()
			op.Partition = rp.Partition
			key := partitionKey{rt.TopicID, rp.Partition}
			after, err := c.alterOne(body, t, rp, &res, done[key])
			done[key] = true
			if err != nil {
				op.ErrorCode = err.code()
			} else {
				op.LeaderID, op.LeaderEpoch, op.ISR, op.PartitionEpoch = after.Leader, after.LeaderEpoch, after.ISR, after.PartitionEpoch
				if after.Recovering {
					op.LeaderRecoveryState = 1
				}
			}
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return res
}

type partitionKey struct {
	topic     ids.UUID
	partition int32
}

func (c *core) alterOne(body *kmsg.AlterPartitionRequest, t *image.Topic, rp *kmsg.AlterPartitionRequestTopicPartition, res *result, again bool) (*image.Partition, *apiError) {
	isr, epochs := proposedISR(body.Version, rp)
	if err := c.checkAlter(body.BrokerID, t, rp, isr, epochs); err != nil {
		return nil, err
	}
	if again {
		// The image does not have the first one yet, and this one was proposed without it.
		return nil, plain(kerr.InvalidUpdateVersion)
	}
	p := t.Partition(rp.Partition)
	ch := c.change(t, rp.Partition)
	ch.isr = isr
	ch.recovering = rp.LeaderRecoveryState == 1
	r := ch.build()
	if r == nil {
		return p, nil
	}
	after, err := p.Changed(r)
	if err != nil {
		return nil, asAPIError(err, kerr.UnknownServerError)
	}
	res.records = append(res.records, r)
	if after.Leader != body.BrokerID {
		return nil, plain(kerr.NewLeaderElected)
	}
	return after, nil
}

func proposedISR(version int16, rp *kmsg.AlterPartitionRequestTopicPartition) (isr []int32, epochs []int64) {
	if version < 3 {
		for _, id := range rp.NewISR {
			isr, epochs = append(isr, id), append(epochs, -1)
		}
		return isr, epochs
	}
	for _, m := range rp.NewEpochISR {
		isr, epochs = append(isr, m.BrokerID), append(epochs, m.BrokerEpoch)
	}
	return isr, epochs
}

func (c *core) checkAlter(sender int32, t *image.Topic, rp *kmsg.AlterPartitionRequestTopicPartition, isr []int32, epochs []int64) *apiError {
	p := t.Partition(rp.Partition)
	switch {
	case t == nil:
		return plain(kerr.UnknownTopicID)
	case p == nil:
		return plain(kerr.UnknownTopicOrPartition)
	case rp.LeaderEpoch > p.LeaderEpoch || rp.PartitionEpoch > p.PartitionEpoch:
		// It has seen more than this controller: another one is active.
		return plain(kerr.NotController)
	case rp.LeaderEpoch < p.LeaderEpoch:
		return plain(kerr.FencedLeaderEpoch)
	case sender != p.Leader:
		return plain(kerr.InvalidRequest)
	case rp.PartitionEpoch < p.PartitionEpoch:
		return plain(kerr.InvalidUpdateVersion)
	}
	sorted := slices.Sorted(slices.Values(isr))
	distinct := len(slices.Compact(sorted)) == len(isr)
	if len(isr) == 0 || !distinct || !containsAll(p.Replicas, isr) || !slices.Contains(isr, p.Leader) {
		return plain(kerr.InvalidRequest)
	}
	recovering := rp.LeaderRecoveryState == 1
	if recovering && (len(isr) > 1 || !p.Recovering) {
		return plain(kerr.InvalidRequest)
	}
	for i, id := range isr {
		b := c.img.Broker(id)
		// A replica of an earlier incarnation may have lost what made it eligible (KIP-903).
		if b == nil || !b.Active() || epochs[i] != -1 && epochs[i] != b.Epoch {
			return plain(kerr.IneligibleReplica)
		}
	}
	return nil
}
