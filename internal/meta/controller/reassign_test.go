package controller

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func reassignRequest(topic string, partition int32, replicas []int32) *kmsg.AlterPartitionAssignmentsRequest {
	return &kmsg.AlterPartitionAssignmentsRequest{Version: 1, AllowReplicationFactorChange: true, Topics: []kmsg.AlterPartitionAssignmentsRequestTopic{{
		Topic: topic, Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{Partition: partition, Replicas: replicas}},
	}}}
}

func (s *sim) reassign(replicas ...int32) int16 {
	s.t.Helper()
	return s.do(reassignRequest("t", 0, replicas)).(*kmsg.AlterPartitionAssignmentsResponse).Topics[0].Partitions[0].ErrorCode
}

// semantics.md §13.5: the life of a reassignment.
func TestReassignment(t *testing.T) {
	s := newSim(t, 5)
	s.create("t", []int32{1, 2})
	if code := s.reassign(3, 4); code != 0 {
		t.Fatal(code)
	}
	p := s.part("t", 0)
	if !slices.Equal(p.Replicas, []int32{3, 4, 1, 2}) || !slices.Equal(p.Adding, []int32{3, 4}) || !slices.Equal(p.Removing, []int32{1, 2}) || p.Leader != 1 || p.LeaderEpoch != 0 {
		t.Fatalf("%+v", p)
	}
	list := s.do(&kmsg.ListPartitionReassignmentsRequest{}).(*kmsg.ListPartitionReassignmentsResponse)
	if len(list.Topics) != 1 || !slices.Equal(list.Topics[0].Partitions[0].AddingReplicas, []int32{3, 4}) {
		t.Errorf("%+v", list)
	}
	if got := s.alterISR("t", 0, 1, 2, 3); got.ErrorCode != 0 || len(s.part("t", 0).Adding) != 2 {
		t.Fatalf("half way: %+v", got)
	}
	if got := s.alterISR("t", 0, 1, 2, 3, 4); got.ErrorCode != kerr.NewLeaderElected.Code {
		t.Fatalf("complete: %+v", got)
	}
	p = s.part("t", 0)
	if !slices.Equal(p.Replicas, []int32{3, 4}) || p.Leader != 3 || !sameSet(p.ISR, []int32{3, 4}) || p.Adding != nil || p.Removing != nil || p.LeaderEpoch != 1 {
		t.Errorf("%+v", p)
	}
	if _, records := s.decide(reassignRequest("t", 0, []int32{3, 4})); len(records) != 0 {
		t.Error("the same target again is no change")
	}
	// Fewer replicas, all of them in the ISR: done at once, in a new leader epoch.
	if code := s.reassign(3); code != 0 || len(s.part("t", 0).Replicas) != 1 || s.part("t", 0).LeaderEpoch != 2 {
		t.Errorf("%d %+v", code, s.part("t", 0))
	}
	s.replayed()
}

func TestReassignmentReplacedAndCancelled(t *testing.T) {
	s := newSim(t, 5)
	s.create("t", []int32{1, 2})
	s.reassign(3, 4)
	s.alterISR("t", 0, 1, 2, 3)
	if code := s.reassign(3, 5); code != 0 {
		t.Fatal(code)
	}
	p := s.part("t", 0)
	if !sameSet(p.Replicas, []int32{3, 5, 1, 2}) || !slices.Equal(p.Adding, []int32{3, 5}) || !slices.Equal(p.Removing, []int32{1, 2}) {
		t.Fatalf("replaced: %+v", p)
	}
	if code := s.reassign(); code != 0 {
		t.Fatal(code)
	}
	p = s.part("t", 0)
	if !sameSet(p.Replicas, []int32{1, 2}) || !sameSet(p.ISR, []int32{1, 2}) || p.Adding != nil || p.Removing != nil {
		t.Errorf("cancelled: %+v", p)
	}
	if code := s.reassign(); code != kerr.NoReassignmentInProgress.Code {
		t.Errorf("nothing to cancel: %d", code)
	}
	s.replayed()
}

// To go back would need a leader that has not everything.
func TestCancelNeedingUncleanElection(t *testing.T) {
	s := newSim(t, 4, noELR)
	s.create("t", []int32{1})
	s.reassign(2, 3)
	s.alterISR("t", 0, 1, 2)
	s.fence(1)
	s.want("t", 0, 2, []int32{2}, nil)
	if code := s.reassign(); code != kerr.InvalidReplicaAssignment.Code {
		t.Errorf("%d", code)
	}
	s.beat(1)
	if code := s.reassign(); code != kerr.InvalidReplicaAssignment.Code {
		t.Errorf("%d", code)
	}
	s.want("t", 0, 2, []int32{2}, nil)
}

func TestReassignmentRefusals(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2})
	for name, c := range map[string]struct {
		replicas []int32
		code     *kerr.Error
	}{
		"empty":     {[]int32{}, kerr.InvalidReplicaAssignment},
		"duplicate": {[]int32{1, 1}, kerr.InvalidReplicaAssignment},
		"unknown":   {[]int32{1, 9}, kerr.InvalidReplicaAssignment},
	} {
		r := s.do(reassignRequest("t", 0, c.replicas)).(*kmsg.AlterPartitionAssignmentsResponse)
		if got := r.Topics[0].Partitions[0].ErrorCode; got != c.code.Code {
			t.Errorf("%s: %d", name, got)
		}
	}
	rq := reassignRequest("t", 0, []int32{1})
	rq.AllowReplicationFactorChange = false
	if r := s.do(rq).(*kmsg.AlterPartitionAssignmentsResponse); r.Topics[0].Partitions[0].ErrorCode != kerr.InvalidReplicationFactor.Code {
		t.Errorf("%+v", r)
	}
	for _, rq := range []*kmsg.AlterPartitionAssignmentsRequest{reassignRequest("x", 0, []int32{1}), reassignRequest("t", 7, []int32{1})} {
		if r := s.do(rq).(*kmsg.AlterPartitionAssignmentsResponse); r.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("%+v", r)
		}
	}
	s.fence(3)
	if code := s.reassign(3, 1); code != 0 {
		t.Errorf("a fenced target is allowed: %d", code)
	}
}
