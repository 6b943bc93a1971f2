package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// The first records of a new cluster are Kafka's (metadata-records.md §1; golden log, offsets 1-9).
func TestBootstrapRecords(t *testing.T) {
	s := newSim(t, 0)
	var names []string
	for _, r := range s.log {
		switch r := r.(type) {
		case *metarec.FeatureLevel:
			names = append(names, r.Name)
		case *metarec.Config:
			names = append(names, r.Name+"="+*r.Value)
		default:
			names = append(names, metarec.Name(r.Type()))
		}
	}
	want := []string{"BeginTransactionRecord", "metadata.version", "eligible.leader.replicas.version", "group.version", "share.version",
		"streams.version", "transaction.version", "min.insync.replicas=1", "EndTransactionRecord"}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
	if s.c.img.MetadataVersion() != 33 || !s.c.img.ELREnabled() {
		t.Errorf("features %v", s.c.img.Features())
	}
}

// semantics.md §13.1, row by row.
func TestCreateTopicsRefusals(t *testing.T) {
	assign := func(replicas ...[]int32) func(*kmsg.CreateTopicsRequestTopic) {
		return func(t *kmsg.CreateTopicsRequestTopic) {
			t.NumPartitions, t.ReplicationFactor = -1, -1
			for i, r := range replicas {
				t.ReplicaAssignment = append(t.ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: r})
			}
		}
	}
	cases := []struct {
		why   string
		name  string
		topic func(*kmsg.CreateTopicsRequestTopic)
		code  *kerr.Error
	}{
		{"metadata topic", "__cluster_metadata", nil, kerr.InvalidRequest},
		{"empty", "", nil, kerr.InvalidTopicException},
		{"dot", ".", nil, kerr.InvalidTopicException},
		{"dots", "..", nil, kerr.InvalidTopicException},
		{"long", strings.Repeat("x", 250), nil, kerr.InvalidTopicException},
		{"characters", "a b", nil, kerr.InvalidTopicException},
		{"collision", "a.b", nil, kerr.InvalidTopicException},
		{"exists", "a_b", nil, kerr.TopicAlreadyExists},
		{"null config", "t", func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "k"}}
		}, kerr.InvalidConfig},
		{"bad config", "t", func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "bad", Value: ptr("1")}}
		}, kerr.InvalidConfig},
		{"assignment and partitions", "t", func(t *kmsg.CreateTopicsRequestTopic) { assign([]int32{1})(t); t.NumPartitions = 1 }, kerr.InvalidRequest},
		{"assignment and factor", "t", func(t *kmsg.CreateTopicsRequestTopic) { assign([]int32{1})(t); t.ReplicationFactor = 1 }, kerr.InvalidRequest},
		{"partition twice", "t", func(t *kmsg.CreateTopicsRequestTopic) {
			assign([]int32{1}, []int32{1})(t)
			t.ReplicaAssignment[1].Partition = 0
		}, kerr.InvalidReplicaAssignment},
		{"partition gap", "t", func(t *kmsg.CreateTopicsRequestTopic) {
			assign([]int32{1}, []int32{1})(t)
			t.ReplicaAssignment[1].Partition = 2
		}, kerr.InvalidReplicaAssignment},
		{"no replicas", "t", assign([]int32{}), kerr.InvalidReplicaAssignment},
		{"replica twice", "t", assign([]int32{1, 1}), kerr.InvalidReplicaAssignment},
		{"unregistered", "t", assign([]int32{1, 9}), kerr.InvalidReplicaAssignment},
		{"sizes differ", "t", assign([]int32{1}, []int32{1, 2}), kerr.InvalidReplicaAssignment},
		{"all fenced", "t", assign([]int32{3}), kerr.InvalidReplicaAssignment},
		{"factor 0", "t", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 0 }, kerr.InvalidReplicationFactor},
		{"factor too large", "t", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 4 }, kerr.InvalidReplicationFactor},
		{"no partitions", "t", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 0 }, kerr.InvalidPartitions},
		{"negative partitions", "t", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = -2 }, kerr.InvalidPartitions},
		{"too many partitions", "t", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 10001 }, kerr.PolicyViolation},
		{"too many records", "t", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 10000 }, kerr.PolicyViolation},
	}
	s := newSim(t, 3, func(o *Options) {
		o.ValidateTopic = func(m map[string]string) error {
			if _, ok := m["bad"]; ok {
				return errors.New("Unknown topic config name: bad")
			}
			return nil
		}
	})
	s.create("a_b", []int32{1})
	s.fence(3)
	for _, c := range cases {
		rq := createRequest(c.name, 1, 1)
		if c.topic != nil {
			c.topic(&rq.Topics[0])
		}
		resp, records := s.decide(rq)
		got := resp.(*kmsg.CreateTopicsResponse).Topics
		if len(got) != 1 || got[0].ErrorCode != c.code.Code || got[0].ErrorMessage == nil || len(records) != 0 {
			t.Errorf("%s: %+v, %d records, want %s", c.why, got, len(records), c.code.Message)
		}
	}
	s.replayed()
}

func TestCreateTopics(t *testing.T) {
	s := newSim(t, 3, func(o *Options) {
		o.EffectiveTopicConfigs = func(_ *image.Image, m map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
			return []kmsg.CreateTopicsResponseTopicConfig{{Name: "n", Value: ptr(m["k"])}}
		}
	})
	rq := createRequest("t", 4, 2)
	rq.Topics[0].Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "k", Value: ptr("v")}}
	rq.ValidateOnly = true
	resp, records := s.decide(rq)
	if r := resp.(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != 0 || r.TopicID == ids.Zero || len(records) != 0 || s.c.img.Topic("t") != nil {
		t.Fatalf("validate only: %+v, %d records", r, len(records))
	}
	rq.ValidateOnly = false
	r := s.do(rq).(*kmsg.CreateTopicsResponse).Topics[0]
	topic := s.c.img.Topic("t")
	if r.TopicID != topic.ID || r.NumPartitions != 4 || r.ReplicationFactor != 2 || *r.Configs[0].Value != "v" {
		t.Errorf("%+v", r)
	}
	for i, p := range topic.Partitions {
		// metadata-records.md §9: the only directory of a broker is known at once.
		if p.Leader != p.Replicas[0] || !slices.Equal(p.ISR, p.Replicas) || p.LeaderEpoch != 0 || p.Directories[0] != (ids.UUID{0xd, byte(p.Leader)}) {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
	// A retry finds the topic (measured.md).
	if r := s.do(rq).(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != kerr.TopicAlreadyExists.Code {
		t.Errorf("%+v", r)
	}
	// measured.md 18: two names that collide are both created when they come together.
	both := createRequest("x.y", 1, 1)
	both.Topics = append(both.Topics, createRequest("x_y", 1, 1).Topics...)
	if r := s.do(both).(*kmsg.CreateTopicsResponse).Topics; r[0].ErrorCode != 0 || r[1].ErrorCode != 0 {
		t.Errorf("%+v", r)
	}
	twice := createRequest("z", 1, 1)
	twice.Topics = append(twice.Topics, twice.Topics[0], twice.Topics[0])
	if r := s.do(twice).(*kmsg.CreateTopicsResponse).Topics; len(r) != 1 || r[0].ErrorCode != kerr.InvalidRequest.Code {
		t.Errorf("a name twice is answered once: %+v", r)
	}
	s.replayed()
}

// K5, KAFKA-14996: a request for a million topics is refused with a bounded error.
func TestHugeCreateIsRefused(t *testing.T) {
	s := newSim(t, 1)
	rq := createRequest("t", 1_000_000, 1)
	for range 200_000 {
		rq.Topics = append(rq.Topics, kmsg.CreateTopicsRequestTopic{Topic: "u" + string(rune('a'+len(rq.Topics)%26)) + strings.Repeat("x", len(rq.Topics)%200), NumPartitions: 2147483647, ReplicationFactor: 1})
	}
	resp, records := s.decide(rq)
	if len(records) != 0 {
		t.Fatal("records")
	}
	if r := resp.(*kmsg.CreateTopicsResponse).Topics; r[len(r)-1].ErrorCode == 0 {
		t.Errorf("%+v", r[len(r)-1])
	}
}

func TestCreateTopicsAuthorization(t *testing.T) {
	deny := map[int8]bool{}
	s := newSim(t, 1, func(o *Options) {
		o.Authorize = func(_ *Request, op, _ int8, _ string) bool { return !deny[op] }
	})
	deny[opDescribeConfigs] = true
	r := s.do(createRequest("t", 1, 1)).(*kmsg.CreateTopicsResponse).Topics[0]
	if r.ErrorCode != 0 || r.ConfigErrorCode != kerr.TopicAuthorizationFailed.Code || r.NumPartitions != -1 || r.ReplicationFactor != -1 || r.Configs != nil {
		t.Errorf("without DESCRIBE_CONFIGS: %+v", r)
	}
	deny[opCreate] = true
	if r := s.do(createRequest("u", 1, 1)).(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != kerr.TopicAuthorizationFailed.Code {
		t.Errorf("without CREATE: %+v", r)
	}
}

// semantics.md §13.2.
func TestDeleteTopics(t *testing.T) {
	s := newSim(t, 1)
	a, b := s.create("a", []int32{1}), s.create("b", []int32{1})
	del := func(topics ...kmsg.DeleteTopicsRequestTopic) map[int16]int {
		counts := map[int16]int{}
		for _, r := range s.do(&kmsg.DeleteTopicsRequest{Version: 6, Topics: topics}).(*kmsg.DeleteTopicsResponse).Topics {
			counts[r.ErrorCode]++
		}
		return counts
	}
	type entry = kmsg.DeleteTopicsRequestTopic
	for _, c := range []struct {
		why    string
		topics []entry
		code   *kerr.Error
		times  int
	}{
		{"both", []entry{{Topic: ptr("a"), TopicID: a.ID}}, kerr.InvalidRequest, 1},
		{"neither", []entry{{}}, kerr.InvalidRequest, 1},
		{"name twice", []entry{{Topic: ptr("a")}, {Topic: ptr("a")}}, kerr.InvalidRequest, 1},
		{"name and id of one topic", []entry{{Topic: ptr("a")}, {TopicID: a.ID}}, kerr.InvalidRequest, 1},
		{"id twice", []entry{{TopicID: ids.UUID{9}}, {TopicID: ids.UUID{9}}}, kerr.InvalidRequest, 1},
		{"unknown name", []entry{{Topic: ptr("x")}}, kerr.UnknownTopicOrPartition, 1},
		{"unknown id", []entry{{TopicID: ids.UUID{9}}}, kerr.UnknownTopicID, 1},
		{"bad name", []entry{{Topic: ptr("a b")}}, kerr.UnknownTopicOrPartition, 1},
	} {
		if got := del(c.topics...); got[c.code.Code] != c.times || len(got) != 1 {
			t.Errorf("%s: %v", c.why, got)
		}
	}
	if s.c.img.TopicCount() != 2 {
		t.Fatal("something was deleted")
	}
	if got := del(entry{Topic: ptr("a")}, entry{TopicID: b.ID}); got[0] != 2 || s.c.img.TopicCount() != 0 {
		t.Errorf("%v", got)
	}
	s.create("a", []int32{1})
	s.c.opt.DisableTopicDeletion = true
	if got := del(entry{Topic: ptr("a")}); got[kerr.TopicDeletionDisabled.Code] != 1 {
		t.Errorf("deletion off: %v", got)
	}
	s.replayed()
}

// semantics.md §13.3.
func TestCreatePartitions(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2}, []int32{2, 3})
	ask := func(count int32, only bool, assignment ...[]int32) kmsg.CreatePartitionsResponseTopic {
		rt := kmsg.CreatePartitionsRequestTopic{Topic: "t", Count: count}
		for _, a := range assignment {
			rt.Assignment = append(rt.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: a})
		}
		return s.do(&kmsg.CreatePartitionsRequest{Version: 3, ValidateOnly: only, Topics: []kmsg.CreatePartitionsRequestTopic{rt}}).(*kmsg.CreatePartitionsResponse).Topics[0]
	}
	for _, c := range []struct {
		why  string
		got  kmsg.CreatePartitionsResponseTopic
		code *kerr.Error
	}{
		{"equal", ask(2, false), kerr.InvalidPartitions},
		{"smaller", ask(1, false), kerr.InvalidPartitions},
		{"assignment count", ask(4, false, []int32{1, 2}), kerr.InvalidReplicaAssignment},
		{"assignment size", ask(3, false, []int32{1}), kerr.InvalidReplicaAssignment},
		{"unknown broker", ask(3, false, []int32{1, 7}), kerr.InvalidReplicaAssignment},
		{"measured 18", ask(10003, false), kerr.PolicyViolation},
	} {
		if c.got.ErrorCode != c.code.Code || c.got.ErrorMessage == nil {
			t.Errorf("%s: %+v", c.why, c.got)
		}
	}
	if r := ask(3, true, []int32{3, 1}); r.ErrorCode != 0 || len(s.c.img.Topic("t").Partitions) != 2 {
		t.Errorf("validate only: %+v", r)
	}
	if r := ask(3, false, []int32{3, 1}); r.ErrorCode != 0 || s.part("t", 2).Leader != 3 {
		t.Errorf("%+v", r)
	}
	if r := ask(9, false); r.ErrorCode != 0 || len(s.c.img.Topic("t").Partitions) != 9 || len(s.part("t", 8).Replicas) != 2 {
		t.Errorf("%+v", r)
	}
	s.replayed()
}

func TestPlacement(t *testing.T) {
	s := newSim(t, 5)
	pl := s.c.placer()
	start := slices.Index([]int32{1, 2, 3, 4, 5}, pl.place(0, 1)[0])
	for i := range 20 {
		for j, id := range pl.place(i, 3) {
			if want := int32((start+i+j)%5 + 1); id != want {
				t.Fatalf("partition %d replica %d on broker %d, want %d", i, j, id, want)
			}
		}
	}
	s.fence(2)
	pl = s.c.placer()
	for i := range 20 {
		if r := pl.place(i, 4); slices.Contains(r, 2) {
			t.Errorf("a fenced broker was used though there were enough: %v", r)
		}
		if r := pl.place(i, 5); r[0] == 2 || !slices.Contains(r, 2) {
			t.Errorf("five of five: %v", r)
		}
	}
}

// With racks every rack gets a replica before one gets two, and all brokers lead equally.
func TestPlacementOverRacks(t *testing.T) {
	s := newSim(t, 6)
	rackOf := map[int32]string{}
	for id := range int32(6) {
		rackOf[id+1] = string(rune('a' + id/2))
		rq := registration(id+1, 2, s.c.img.Broker(id+1).Epoch)
		rq.Rack = ptr(rackOf[id+1])
		s.fence(id + 1)
		s.do(rq)
		s.beat(id + 1)
	}
	pl := s.c.placer()
	leaders, all := map[int32]int{}, map[int32]int{}
	for i := range 60 {
		r := pl.place(i, 3)
		leaders[r[0]]++
		racks := map[string]bool{}
		for _, id := range r {
			racks[rackOf[id]] = true
			all[id]++
		}
		if len(racks) != 3 {
			t.Fatalf("partition %d: %v", i, r)
		}
		if four := pl.place(i, 6); len(slices.Compact(slices.Sorted(slices.Values(four)))) != 6 {
			t.Fatalf("six of six: %v", four)
		}
	}
	for id := range rackOf {
		if leaders[id] != 10 || all[id] != 30 {
			t.Errorf("broker %d leads %d and holds %d", id, leaders[id], all[id])
		}
	}
}

func BenchmarkCreateTopics(b *testing.B) {
	t := &testing.T{}
	s := newSim(t, 3)
	n := 0
	for b.Loop() {
		n++
		rq := createRequest("topic"+strings.Repeat("x", n%200)+string(rune('a'+n/200%26))+string(rune('a'+n/5200%26))+string(rune('a'+n/135200)), 10, 3)
		res := s.c.decide(&Request{Body: rq}, s.now)
		if err := s.c.apply(res.records, s.c.next+int64(len(res.records))-1, 1); err != nil {
			b.Fatal(err)
		}
		for _, batch := range batches(res, 33) {
			_ = batch
		}
	}
}
