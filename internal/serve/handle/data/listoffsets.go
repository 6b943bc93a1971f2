package data

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/repl/partition"
	"runnel/internal/serve/api"
)

// lowestVersion is the request version from which a special timestamp is known.
var lowestVersion = map[int64]int16{
	partition.Latest: 1, partition.Earliest: 1, partition.MaxTimestamp: 7, partition.EarliestLocal: 8,
	partition.LatestTiered: 9, partition.EarliestPendingUpload: 11,
}

// listOffsets serves ListOffsets v1-v11 (KIP-79, KIP-734, KIP-405). Spec: semantics.md 7.
func (d *Data) listOffsets(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.ListOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	times := map[slotKey]int{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			times[slotKey{topic: req.Topics[i].Topic, index: req.Topics[i].Partitions[j].Partition}]++
		}
	}
	for i := range req.Topics {
		t := &req.Topics[i]
		out := kmsg.NewListOffsetsResponseTopic()
		out.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			po := kmsg.NewListOffsetsResponseTopicPartition()
			po.Partition, po.Offset, po.Timestamp, po.LeaderEpoch = p.Partition, -1, -1, -1
			k := slotKey{topic: t.Topic, index: p.Partition}
			if times[k] == 0 {
				continue // answered: a duplicate
			}
			var found partition.OffsetTime
			err := fmt.Errorf("partition %s-%d is there twice: %w", t.Topic, p.Partition, kerr.InvalidRequest)
			if times[k] == 1 {
				found, err = d.listOffset(req, t.Topic, p)
			}
			times[k] = 0
			if err != nil {
				po.ErrorCode = api.Code(err)
				if po.ErrorCode == kerr.OffsetNotAvailable.Code && req.Version < 5 {
					po.ErrorCode = kerr.LeaderNotAvailable.Code
				}
			} else {
				po.Offset, po.Timestamp, po.LeaderEpoch = found.Offset, found.Timestamp, found.Epoch
			}
			out.Partitions = append(out.Partitions, po)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return api.Done(resp)
}

func (d *Data) listOffset(req *kmsg.ListOffsetsRequest, topic string, p *kmsg.ListOffsetsRequestTopicPartition) (partition.OffsetTime, error) {
	if p.Timestamp < 0 {
		if from, ok := lowestVersion[p.Timestamp]; !ok || req.Version < from {
			return partition.OffsetTime{}, fmt.Errorf("timestamp %d has no meaning in version %d: %w", p.Timestamp, req.Version, kerr.UnsupportedVersion)
		}
	}
	replica, err := d.find(d.opts.Image(), topic, p.Partition)
	if err != nil {
		return partition.OffsetTime{}, err
	}
	isolation := partition.Uncommitted
	switch {
	case req.ReplicaID >= 0:
		isolation = partition.LogEnd
	case req.IsolationLevel == 1:
		isolation = partition.Committed
	}
	epoch := int32(-1)
	if req.Version >= 4 {
		epoch = p.CurrentLeaderEpoch
	}
	if epoch < -1 {
		return partition.OffsetTime{}, kerr.FencedLeaderEpoch
	}
	return replica.ListOffset(p.Timestamp, epoch, isolation, req.ReplicaID == -2)
}
