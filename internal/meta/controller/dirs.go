package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// maxAssignments bounds an AssignReplicasToDirs request.
const maxAssignments = 2000

// directoryChanges notes the directories that a heartbeat calls offline or cordoned
// (metadata-records.md §6, §9).
func (c *core) directoryChanges(b *image.Broker, body *kmsg.BrokerHeartbeatRequest) []metarec.Record {
	var records []metarec.Record
	mv := c.img.MetadataVersion()
	if len(body.OfflineLogDirs) > 0 && mv >= feature.DirectoryAssignment {
		var gone []ids.UUID
		for _, d := range body.OfflineLogDirs {
			if slices.Contains(b.LogDirs, ids.UUID(d)) {
				gone = append(gone, d)
			}
		}
		if len(gone) > 0 {
			left := slices.DeleteFunc(slices.Clone(b.LogDirs), func(d ids.UUID) bool { return slices.Contains(gone, d) })
			if len(left) > 0 { // the record cannot say "none"; a broker without directories stops
				records = append(records, &metarec.BrokerRegistrationChange{BrokerID: b.ID, BrokerEpoch: b.Epoch, LogDirs: left})
			}
			records = append(records, c.removeFromDirs(b.ID, gone)...)
		}
	}
	if body.CordonedLogDirs != nil && mv >= feature.Cordoning {
		cordoned := make([]ids.UUID, len(body.CordonedLogDirs))
		for i, d := range body.CordonedLogDirs {
			cordoned[i] = d
		}
		if !slices.Equal(cordoned, b.CordonedDirs) {
			records = append(records, &metarec.BrokerRegistrationChange{BrokerID: b.ID, BrokerEpoch: b.Epoch, CordonedLogDirs: cordoned})
		}
	}
	return records
}

// removeFromDirs takes a broker's replicas in offline directories out of ISRs.
func (c *core) removeFromDirs(broker int32, dirs []ids.UUID) []metarec.Record {
	var records []metarec.Record
	for t := range c.img.Topics() {
		for id, p := range t.Partitions {
			if !slices.Contains(p.ISR, broker) && p.Leader != broker || !slices.Contains(dirs, directory(p, broker)) {
				continue
			}
			ch := c.change(t, int32(id))
			ch.isr = without(p.ISR, broker)
			ch.acceptable = func(id int32) bool { return id != broker && c.acceptable(p, id) }
			if r := ch.build(); r != nil {
				records = append(records, r)
			}
		}
	}
	return records
}

// assignReplicasToDirs serves AssignReplicasToDirs (KIP-858).
func (c *core) assignReplicasToDirs(rq *Request, body *kmsg.AssignReplicasToDirsRequest) result {
	resp := body.ResponseKind().(*kmsg.AssignReplicasToDirsResponse)
	res := result{response: resp}
	switch b := c.img.Broker(body.BrokerID); {
	case !c.onCluster(rq, opClusterAction):
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return res
	case c.img.MetadataVersion() < feature.DirectoryAssignment:
		resp.ErrorCode = kerr.UnsupportedVersion.Code
		return res
	case b == nil:
		resp.ErrorCode = kerr.BrokerIDNotRegistered.Code
		return res
	case b.Epoch != body.BrokerEpoch:
		resp.ErrorCode = kerr.StaleBrokerEpoch.Code
		return res
	}
	total := 0
	for _, d := range body.Directories {
		for _, t := range d.Topics {
			total += len(t.Partitions)
		}
	}
	if total > maxAssignments {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return res
	}
	for _, d := range body.Directories {
		outDir := kmsg.NewAssignReplicasToDirsResponseDirectory()
		outDir.ID = d.ID
		for _, rt := range d.Topics {
			outTopic := kmsg.NewAssignReplicasToDirsResponseDirectoryTopic()
			outTopic.TopicID = rt.TopicID
			for _, rp := range rt.Partitions {
				records, err := c.assignDir(body.BrokerID, d.ID, rt.TopicID, rp.Partition)
				res.records = append(res.records, records...)
				op := kmsg.NewAssignReplicasToDirsResponseDirectoryTopicPartition()
				op.Partition, op.ErrorCode = rp.Partition, err.code()
				outTopic.Partitions = append(outTopic.Partitions, op)
			}
			outDir.Topics = append(outDir.Topics, outTopic)
		}
		resp.Directories = append(resp.Directories, outDir)
	}
	return res
}

func (c *core) assignDir(broker int32, dir, topic ids.UUID, partition int32) ([]metarec.Record, *apiError) {
	t := c.img.TopicByID(topic)
	if t == nil {
		return nil, plain(kerr.UnknownTopicID)
	}
	p := t.Partition(partition)
	if p == nil {
		return nil, plain(kerr.UnknownTopicOrPartition)
	}
	at := slices.Index(p.Replicas, broker)
	if at < 0 {
		return nil, plain(kerr.NotLeaderForPartition)
	}
	ch := c.change(t, partition)
	ch.directories = slices.Clone(p.Directories)
	ch.directories[at] = dir
	if !c.img.Broker(broker).HasOnlineDir(dir) {
		ch.isr = without(p.ISR, broker)
		ch.acceptable = func(id int32) bool { return id != broker && c.acceptable(p, id) }
	}
	if r := ch.build(); r != nil {
		return []metarec.Record{r}, nil
	}
	return nil, nil
}
