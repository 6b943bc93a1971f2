package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/metarec"
)

// createPartitions serves CreatePartitions (semantics.md §13.3).
func (c *core) createPartitions(rq *Request, body *kmsg.CreatePartitionsRequest) result {
	resp := body.ResponseKind().(*kmsg.CreatePartitionsResponse)
	res := result{response: resp, atomic: true}
	count := map[string]int{}
	for _, t := range body.Topics {
		count[t.Topic]++
	}
	add := func(name string, err *apiError) {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic, t.ErrorCode, t.ErrorMessage = name, err.code(), err.message()
		resp.Topics = append(resp.Topics, t)
	}
	for i := range body.Topics {
		t := &body.Topics[i]
		switch {
		case count[t.Topic] < 0:
		case count[t.Topic] > 1:
			count[t.Topic] = -1
			add(t.Topic, fail(kerr.InvalidRequest, "Duplicate topic name."))
		case t.Topic == ids.MetadataTopic || !c.authorized(rq, opAlter, onTopic, t.Topic):
			add(t.Topic, plain(kerr.TopicAuthorizationFailed))
		default:
			records, err := c.addPartitions(t, MaxRecords-len(res.records))
			res.records = append(res.records, records...)
			add(t.Topic, err)
		}
	}
	if body.ValidateOnly {
		res.records = nil
	}
	return res
}

func (c *core) addPartitions(t *kmsg.CreatePartitionsRequestTopic, room int) ([]metarec.Record, *apiError) {
	topic := c.img.Topic(t.Topic)
	if topic == nil {
		return nil, bare(kerr.UnknownTopicOrPartition)
	}
	have := len(topic.Partitions)
	switch {
	case int(t.Count) == have:
		return nil, fail(kerr.InvalidPartitions, "Topic already has %d partition(s).", have)
	case int(t.Count) < have:
		return nil, fail(kerr.InvalidPartitions, "The topic %s currently has %d partition(s); %d would not be an increase.", t.Topic, have, t.Count)
	}
	more := int(t.Count) - have
	if len(t.Assignment) > 0 && len(t.Assignment) != more {
		return nil, fail(kerr.InvalidReplicaAssignment, "Attempted to add %d additional partition(s), but only %d assignment(s) were specified.", more, len(t.Assignment))
	}
	if more > MaxRecords {
		return nil, fail(kerr.PolicyViolation, "Excessively large number of additional partitions per request.")
	}
	if more > room {
		return nil, errTooManyRecords
	}
	factor := len(topic.Partitions[0].Replicas)
	var pl *placer
	if len(t.Assignment) == 0 {
		pl = c.placer()
		if err := pl.check(factor); err != nil {
			return nil, err
		}
		// Go on where the topic's last placement is likely to have stopped.
		pl.start += have
	}
	records := make([]metarec.Record, 0, more)
	for i := range more {
		var replicas []int32
		if pl != nil {
			replicas = pl.place(i, factor)
		} else {
			replicas = t.Assignment[i].Replicas
			if err := c.checkAssignment(replicas, factor); err != nil {
				return nil, err
			}
		}
		isr := c.activeOf(replicas)
		if len(isr) == 0 {
			return nil, fail(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", have+i)
		}
		records = append(records, c.newPartition(replicas, isr).Record(topic, int32(have+i)))
	}
	return records, nil
}
