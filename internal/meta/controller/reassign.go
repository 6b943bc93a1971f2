package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// alterReassignments serves AlterPartitionReassignments (semantics.md §13.5).
func (c *core) alterReassignments(rq *Request, body *kmsg.AlterPartitionAssignmentsRequest) result {
	resp := body.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = body.AllowReplicationFactorChange
	res := result{response: resp, atomic: true}
	if !c.onCluster(rq, opAlter) {
		err := plain(kerr.ClusterAuthorizationFailed)
		resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
		return res
	}
	for _, rt := range body.Topics {
		out := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		out.Topic = rt.Topic
		t := c.img.Topic(rt.Topic)
		for _, rp := range rt.Partitions {
			fixed := body.Version >= 1 && !body.AllowReplicationFactorChange
			r, err := c.reassign(t, rt.Topic, rp, fixed)
			if r != nil {
				res.records = append(res.records, r)
			}
			op := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			op.Partition, op.ErrorCode, op.ErrorMessage = rp.Partition, err.code(), err.message()
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
	if len(res.records) > MaxRecords {
		res.records = nil
		resp.Topics = nil
		resp.ErrorCode, resp.ErrorMessage = errTooManyRecords.code(), errTooManyRecords.message()
	}
	return res
}

func (c *core) reassign(t *image.Topic, name string, rp kmsg.AlterPartitionAssignmentsRequestTopicPartition, fixedFactor bool) (*metarec.PartitionChange, *apiError) {
	if t == nil {
		return nil, fail(kerr.UnknownTopicOrPartition, "Unable to find a topic named %s.", name)
	}
	p := t.Partition(rp.Partition)
	if p == nil {
		return nil, fail(kerr.UnknownTopicOrPartition, "Unable to find partition %s:%d.", name, rp.Partition)
	}
	if rp.Replicas == nil {
		return c.cancelReassignment(t, rp.Partition, p)
	}
	if err := c.checkAssignment(rp.Replicas, 0); err != nil {
		return nil, err
	}
	current := without(p.Replicas, p.Adding...)
	if fixedFactor && len(rp.Replicas) != len(current) {
		return nil, fail(kerr.InvalidReplicationFactor, "The replication factor is changed from %d to %d", len(current), len(rp.Replicas))
	}
	ch := c.change(t, rp.Partition)
	// The original replicas that the target lacks are kept until it is complete. What an
	// earlier reassignment was adding and this one does not want goes at once, unless the ISR
	// has nothing else.
	dropped := without(p.Adding, rp.Replicas...)
	if isr := without(p.ISR, dropped...); len(isr) > 0 {
		ch.isr = isr
	} else {
		dropped = nil
	}
	leaving := without(p.Replicas, append(slices.Clone(rp.Replicas), dropped...)...)
	ch.replicas = append(slices.Clone(rp.Replicas), leaving...)
	ch.removing = slices.Sorted(slices.Values(leaving))
	ch.adding = slices.Sorted(slices.Values(without(rp.Replicas, current...)))
	return ch.build(), nil
}

func (c *core) cancelReassignment(t *image.Topic, id int32, p *image.Partition) (*metarec.PartitionChange, *apiError) {
	if len(p.Adding) == 0 && len(p.Removing) == 0 {
		return nil, bare(kerr.NoReassignmentInProgress)
	}
	ch := c.change(t, id)
	ch.replicas = without(p.Replicas, p.Adding...)
	ch.adding, ch.removing = nil, nil
	ch.isr = without(p.ISR, p.Adding...)
	ch.directories = dirsOf(p.Replicas, p.Directories, ch.replicas)
	if len(ch.isr) > 0 {
		return ch.build(), nil
	}
	// Nobody in the ISR stays: only an eligible replica, or permission, can give a leader.
	r := ch.build()
	if r == nil || r.Leader < 0 || r.LeaderRecoveryState == 1 && !c.uncleanElection(t.Name) {
		return nil, errUncleanCancel(t, id)
	}
	return r, nil
}

func errUncleanCancel(t *image.Topic, id int32) *apiError {
	return fail(kerr.InvalidReplicaAssignment, "Unable to revert partition assignment for %s:%d because it would require an unclean leader election.", t.Name, id)
}

// listReassignments serves ListPartitionReassignments.
func (c *core) listReassignments(rq *Request, body *kmsg.ListPartitionReassignmentsRequest) result {
	resp := body.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	res := result{response: resp}
	if !c.onCluster(rq, opDescribe) {
		err := plain(kerr.ClusterAuthorizationFailed)
		resp.ErrorCode, resp.ErrorMessage = err.code(), err.message()
		return res
	}
	list := func(t *image.Topic, wanted func(int32) bool) {
		out := kmsg.NewListPartitionReassignmentsResponseTopic()
		out.Topic = t.Name
		for id, p := range t.Partitions {
			if len(p.Adding)+len(p.Removing) == 0 || !wanted(int32(id)) {
				continue
			}
			op := kmsg.NewListPartitionReassignmentsResponseTopicPartition()
			op.Partition, op.Replicas, op.AddingReplicas, op.RemovingReplicas = int32(id), p.Replicas, p.Adding, p.Removing
			out.Partitions = append(out.Partitions, op)
		}
		if len(out.Partitions) > 0 {
			resp.Topics = append(resp.Topics, out)
		}
	}
	if body.Topics == nil {
		for t := range c.img.Topics() {
			list(t, func(int32) bool { return true })
		}
		return res
	}
	for _, rt := range body.Topics {
		if t := c.img.Topic(rt.Topic); t != nil {
			list(t, func(id int32) bool { return slices.Contains(rt.Partitions, id) })
		}
	}
	return res
}
