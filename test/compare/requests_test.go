package compare

import (
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func str(s string) *string { return &s }

func versions(name, version string) *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion, r.NodeID = name, version, -1
	return r
}

func metadata(topics ...string) *kmsg.MetadataRequest {
	r := kmsg.NewPtrMetadataRequest()
	r.Topics = []kmsg.MetadataRequestTopic{}
	for _, t := range topics {
		x := kmsg.NewMetadataRequestTopic()
		x.Topic = str(t)
		r.Topics = append(r.Topics, x)
	}
	return r
}

func createTopic(name string, partitions int32, replicas int16, configs ...string) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replicas
	for _, c := range configs {
		x := kmsg.NewCreateTopicsRequestTopicConfig()
		k, v, set := strings.Cut(c, "=")
		x.Name = k
		if set {
			x.Value = str(v)
		}
		t.Configs = append(t.Configs, x)
	}
	return t
}

func createTopics(ts ...kmsg.CreateTopicsRequestTopic) *kmsg.CreateTopicsRequest {
	r := kmsg.NewPtrCreateTopicsRequest()
	r.TimeoutMillis, r.Topics = 10000, ts
	return r
}

// topic makes a topic and waits until it can be produced to. Records of scenes are years old: they are to stay, in one
// segment.
func (s *script) topic(name string, partitions int32, configs ...string) string {
	full := s.own(name)
	configs = append([]string{"retention.ms=-1", "segment.ms=9000000000000"}, configs...)
	r := s.quiet(7, createTopics(createTopic(full, partitions, 1, configs...))).(*kmsg.CreateTopicsResponse)
	if len(r.Topics) != 1 || r.Topics[0].ErrorCode != 0 {
		s.fail("topic %s was not made: %+v", full, r.Topics)
	}
	s.settle(full, partitions)
	return full
}

// settle waits until all partitions of a topic have a leader that answers.
func (s *script) settle(full string, partitions int32) {
	m := s.until("", 12, metadata(full), func(r kmsg.Response) bool {
		m := r.(*kmsg.MetadataResponse)
		for _, p := range m.Topics[0].Partitions {
			if p.ErrorCode != 0 || p.Leader < 0 {
				return false
			}
		}
		return len(m.Topics[0].Partitions) == int(partitions)
	}).(*kmsg.MetadataResponse)
	s.ids[full] = m.Topics[0].TopicID
	s.names.given["id"+fmt.Sprint(m.Topics[0].TopicID)] = "<id of " + strings.TrimPrefix(full, s.scene+".") + ">"
	for p := range partitions {
		s.until("", 7, listOffsets(full, p, -1), func(r kmsg.Response) bool {
			return r.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].ErrorCode == 0
		})
	}
}

func deleteTopics(names ...string) *kmsg.DeleteTopicsRequest {
	r := kmsg.NewPtrDeleteTopicsRequest()
	r.TimeoutMillis, r.TopicNames = 10000, names
	for _, n := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = str(n)
		r.Topics = append(r.Topics, t)
	}
	return r
}

func createPartitions(name string, count int32, assignment ...[]int32) *kmsg.CreatePartitionsRequest {
	r := kmsg.NewPtrCreatePartitionsRequest()
	r.TimeoutMillis = 10000
	return addPartitions(r, name, count, assignment...)
}

func addPartitions(r *kmsg.CreatePartitionsRequest, name string, count int32, assignment ...[]int32) *kmsg.CreatePartitionsRequest {
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, count
	for _, a := range assignment {
		x := kmsg.NewCreatePartitionsRequestTopicAssignment()
		x.Replicas = a
		t.Assignment = append(t.Assignment, x)
	}
	r.Topics = append(r.Topics, t)
	return r
}

// produce is a Produce with acks=all for one partition; and adds another.
func (s *script) produce(topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	r := kmsg.NewPtrProduceRequest()
	r.Acks, r.TimeoutMillis = -1, 5000
	return s.and(r, topic, partition, records)
}

func (s *script) and(r *kmsg.ProduceRequest, topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	if n := len(r.Topics); n > 0 && r.Topics[n-1].Topic == topic {
		r.Topics[n-1].Partitions = append(r.Topics[n-1].Partitions, p)
		return r
	}
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, s.ids[topic]
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// put produces without keeping the answer.
func (s *script) put(topic string, partition int32, rs []rec, changes ...wrong) {
	r := s.quiet(11, s.produce(topic, partition, pack(rs, changes...))).(*kmsg.ProduceResponse)
	if len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		s.fail("records were refused: %+v", r.Topics)
	}
}

func (s *script) fetch(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	r := kmsg.NewPtrFetchRequest()
	r.MaxWaitMillis, r.MinBytes, r.MaxBytes, r.SessionEpoch = 0, 0, 1<<20, -1
	return s.fetchAlso(r, topic, partition, offset)
}

func (s *script) fetchAlso(r *kmsg.FetchRequest, topic string, partition int32, offset int64) *kmsg.FetchRequest {
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, offset, 1<<20
	if n := len(r.Topics); n > 0 && r.Topics[n-1].Topic == topic {
		r.Topics[n-1].Partitions = append(r.Topics[n-1].Partitions, p)
		return r
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = topic, s.ids[topic]
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func listOffsets(topic string, partition int32, timestamp int64) *kmsg.ListOffsetsRequest {
	r := kmsg.NewPtrListOffsetsRequest()
	r.ReplicaID, r.TimeoutMillis = -1, 5000
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func deleteRecords(topic string, partition int32, offset int64) *kmsg.DeleteRecordsRequest {
	r := kmsg.NewPtrDeleteRecordsRequest()
	r.TimeoutMillis = 5000
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, offset
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func leaderEpoch(topic string, partition, current, epoch int32) *kmsg.OffsetForLeaderEpochRequest {
	r := kmsg.NewPtrOffsetForLeaderEpochRequest()
	r.ReplicaID = -1
	t := kmsg.NewOffsetForLeaderEpochRequestTopic()
	t.Topic = topic
	p := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.LeaderEpoch = partition, current, epoch
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func initProducer() *kmsg.InitProducerIDRequest {
	r := kmsg.NewPtrInitProducerIDRequest()
	r.ProducerID, r.ProducerEpoch, r.TransactionTimeoutMillis = -1, -1, 60000
	return r
}

func describeProducers(topic string, partitions ...int32) *kmsg.DescribeProducersRequest {
	r := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	r.Topics = append(r.Topics, t)
	return r
}

func describeConfigs(kind kmsg.ConfigResourceType, name string, keys ...string) *kmsg.DescribeConfigsRequest {
	r := kmsg.NewPtrDescribeConfigsRequest()
	x := kmsg.NewDescribeConfigsRequestResource()
	x.ResourceType, x.ResourceName, x.ConfigNames = kind, name, keys
	r.Resources = append(r.Resources, x)
	return r
}

// alter is an IncrementalAlterConfigs. Operations are spelt =key=value (set), -key (delete), +key=value (append),
// ~key=value (subtract), ?key=value (no such operation).
func alter(kind kmsg.ConfigResourceType, name string, ops ...string) *kmsg.IncrementalAlterConfigsRequest {
	r := kmsg.NewPtrIncrementalAlterConfigsRequest()
	x := kmsg.NewIncrementalAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kind, name
	for _, op := range ops {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		k, v, set := strings.Cut(op[1:], "=")
		c.Name, c.Op = k, kmsg.IncrementalAlterConfigOp(strings.IndexByte("=-+~?", op[0]))
		if op[0] == '?' {
			c.Op = 9
		}
		if set {
			c.Value = str(v)
		}
		x.Configs = append(x.Configs, c)
	}
	r.Resources = append(r.Resources, x)
	return r
}

func alterOld(kind kmsg.ConfigResourceType, name string, sets ...string) *kmsg.AlterConfigsRequest {
	r := kmsg.NewPtrAlterConfigsRequest()
	x := kmsg.NewAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kind, name
	for _, set := range sets {
		c := kmsg.NewAlterConfigsRequestResourceConfig()
		k, v, has := strings.Cut(set, "=")
		c.Name = k
		if has {
			c.Value = str(v)
		}
		x.Configs = append(x.Configs, c)
	}
	r.Resources = append(r.Resources, x)
	return r
}

func findCoordinator(keys ...string) *kmsg.FindCoordinatorRequest {
	r := kmsg.NewPtrFindCoordinatorRequest()
	r.CoordinatorKeys = keys
	if len(keys) > 0 {
		r.CoordinatorKey = keys[0]
	}
	return r
}

func join(group, member string, protocols ...string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.ProtocolType = group, member, "consumer"
	r.SessionTimeoutMillis, r.RebalanceTimeoutMillis = 20000, 20000
	if len(protocols) == 0 {
		protocols = []string{"range"}
	}
	for _, name := range protocols {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, subscription()
		r.Protocols = append(r.Protocols, p)
	}
	return r
}

// subscription is what a Java consumer sends with its protocol.
func subscription(topics ...string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, topics
	return m.AppendTo(nil)
}

// sync is a SyncGroup; assignments are member, bytes, member, bytes ...
func syncGroup(group string, generation int32, member string, assignments ...string) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.Generation, r.MemberID = group, generation, member
	r.ProtocolType, r.Protocol = str("consumer"), str("range")
	for i := 0; i+1 < len(assignments); i += 2 {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = assignments[i], []byte(assignments[i+1])
		r.GroupAssignment = append(r.GroupAssignment, a)
	}
	return r
}

func heartbeat(group string, generation int32, member string) *kmsg.HeartbeatRequest {
	r := kmsg.NewPtrHeartbeatRequest()
	r.Group, r.Generation, r.MemberID = group, generation, member
	return r
}

func leave(group string, members ...string) *kmsg.LeaveGroupRequest {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group = group
	for _, m := range members {
		x := kmsg.NewLeaveGroupRequestMember()
		x.MemberID, x.Reason = m, str("the scene says so")
		r.MemberID = m
		r.Members = append(r.Members, x)
	}
	return r
}

// member makes a stable group of one member on a connection.
func (s *script) member(conn, group string, topics ...string) (id string, generation int32) {
	j := join(group, "")
	j.Protocols[0].Metadata = subscription(topics...)
	j.MemberID = s.quietAt(conn, 4, j).(*kmsg.JoinGroupResponse).MemberID
	r := s.quietAt(conn, 4, j).(*kmsg.JoinGroupResponse)
	if r.ErrorCode != 0 {
		s.fail("join: %d", r.ErrorCode)
	}
	if y := s.quietAt(conn, 3, syncGroup(group, r.Generation, r.MemberID, r.MemberID, "mine")).(*kmsg.SyncGroupResponse); y.ErrorCode != 0 {
		s.fail("sync: %d", y.ErrorCode)
	}
	s.names.text(r.MemberID, "", true)
	return r.MemberID, r.Generation
}

func (s *script) commit(group string, generation int32, member, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.Generation, r.MemberID, r.RetentionTimeMillis = group, generation, member, -1
	return s.commitAlso(r, topic, partition, offset)
}

func (s *script) commitAlso(r *kmsg.OffsetCommitRequest, topic string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, s.ids[topic]
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.Metadata, p.LeaderEpoch = partition, offset, str("about it"), -1
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// committed is an OffsetFetch in the shapes of all versions; no topic means all of the group's.
func (s *script) committed(group, topic string, partitions ...int32) *kmsg.OffsetFetchRequest {
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = group, -1
	if topic != "" {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		r.Topics = append(r.Topics, t)
		x := kmsg.NewOffsetFetchRequestGroupTopic()
		x.Topic, x.TopicID, x.Partitions = topic, s.ids[topic], partitions
		g.Topics = append(g.Topics, x)
	}
	r.Groups = append(r.Groups, g)
	return r
}

func offsetDelete(group, topic string, partitions ...int32) *kmsg.OffsetDeleteRequest {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = group
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic = topic
	for _, p := range partitions {
		x := kmsg.NewOffsetDeleteRequestTopicPartition()
		x.Partition = p
		t.Partitions = append(t.Partitions, x)
	}
	r.Topics = append(r.Topics, t)
	return r
}

func describeGroups(groups ...string) *kmsg.DescribeGroupsRequest {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups = groups
	return r
}

func deleteGroups(groups ...string) *kmsg.DeleteGroupsRequest {
	r := kmsg.NewPtrDeleteGroupsRequest()
	r.Groups = groups
	return r
}

func electLeaders(kind int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	r := kmsg.NewPtrElectLeadersRequest()
	r.ElectionType, r.TimeoutMillis = kind, 5000
	t := kmsg.NewElectLeadersRequestTopic()
	t.Topic, t.Partitions = topic, partitions
	r.Topics = append(r.Topics, t)
	return r
}

func reassign(topic string, partition int32, replicas []int32) *kmsg.AlterPartitionAssignmentsRequest {
	r := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	r.TimeoutMillis = 5000
	t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	t.Topic = topic
	p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
	p.Partition, p.Replicas = partition, replicas
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

func updateFeature(name string, level int16, kind int8) *kmsg.UpdateFeaturesRequest {
	r := kmsg.NewPtrUpdateFeaturesRequest()
	r.TimeoutMillis, r.ValidateOnly = 5000, true
	f := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	f.Feature, f.MaxVersionLevel, f.UpgradeType = name, level, kind
	r.FeatureUpdates = append(r.FeatureUpdates, f)
	return r
}

const moment = 120 * time.Millisecond
