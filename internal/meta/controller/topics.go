package controller

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

const maxTopicName = 249

func checkTopicName(name string) *apiError {
	switch {
	case name == "":
		return fail(kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return fail(kerr.InvalidTopicException, "Topic name is invalid: '%s' is not allowed", name)
	case len(name) > maxTopicName:
		return fail(kerr.InvalidTopicException, "Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, maxTopicName)
	}
	for i := range len(name) {
		b := name[i]
		if b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-' {
			continue
		}
		return fail(kerr.InvalidTopicException, "Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	}
	return nil
}

func collisionKey(name string) (string, bool) {
	return strings.ReplaceAll(name, ".", "_"), strings.ContainsAny(name, "._")
}

func (c *core) addCollision(name string) {
	if key, ok := collisionKey(name); ok {
		c.collisions[key] = append(c.collisions[key], name)
	}
}

func (c *core) dropCollision(name string) {
	if key, ok := collisionKey(name); ok {
		if rest := slices.DeleteFunc(c.collisions[key], func(n string) bool { return n == name }); len(rest) > 0 {
			c.collisions[key] = rest
		} else {
			delete(c.collisions, key)
		}
	}
}

// createTopics serves CreateTopics (semantics.md §13.1), the checks in the order given there.
func (c *core) createTopics(rq *Request, body *kmsg.CreateTopicsRequest) result {
	resp := body.ResponseKind().(*kmsg.CreateTopicsResponse)
	res := result{response: resp, atomic: true}
	count := map[string]int{}
	for _, t := range body.Topics {
		count[t.Topic]++
	}
	var accepted []*kmsg.CreateTopicsRequestTopic
	for i := range body.Topics {
		t := &body.Topics[i]
		var err *apiError
		switch {
		case count[t.Topic] < 0:
			continue // answered at its first appearance
		case count[t.Topic] > 1:
			count[t.Topic] = -1
			err = fail(kerr.InvalidRequest, "Duplicate topic name.")
		case t.Topic == ids.MetadataTopic:
			err = fail(kerr.InvalidRequest, "Creation of internal topic %s is prohibited.", t.Topic)
		case !c.onCluster(rq, opCreate) && !c.authorized(rq, opCreate, onTopic, t.Topic):
			err = fail(kerr.TopicAuthorizationFailed, "Authorization failed.")
		default:
			accepted = append(accepted, t)
			continue
		}
		resp.Topics = append(resp.Topics, failedTopic(t.Topic, err))
	}
	if c.tooManyPartitions(accepted) {
		for _, t := range accepted {
			resp.Topics = append(resp.Topics, failedTopic(t.Topic, fail(kerr.PolicyViolation, "Excessively large number of partitions per request.")))
		}
		return res
	}
	var pl *placer
	for _, t := range accepted {
		if pl == nil && len(t.ReplicaAssignment) == 0 {
			pl = c.placer()
		}
		out, records, err := c.createTopic(rq, t, pl)
		if err != nil {
			out = failedTopic(t.Topic, err)
		}
		resp.Topics = append(resp.Topics, out)
		res.records = append(res.records, records...)
	}
	if len(res.records) > MaxRecords {
		res.records = nil
		for i := range resp.Topics {
			if resp.Topics[i].ErrorCode == 0 {
				resp.Topics[i] = failedTopic(resp.Topics[i].Topic, errTooManyRecords)
			}
		}
	}
	if body.ValidateOnly {
		res.records = nil
	}
	return res
}

func failedTopic(name string, err *apiError) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic, t.ErrorCode, t.ErrorMessage = name, err.code(), err.message()
	t.NumPartitions, t.ReplicationFactor, t.Configs = -1, -1, []kmsg.CreateTopicsResponseTopicConfig{}
	return t
}

// tooManyPartitions bounds a request before any work is done for it (KAFKA-14996).
func (c *core) tooManyPartitions(topics []*kmsg.CreateTopicsRequestTopic) bool {
	total := int64(0)
	for _, t := range topics {
		switch {
		case len(t.ReplicaAssignment) > 0:
			total += int64(len(t.ReplicaAssignment))
		case t.NumPartitions > 0:
			total += int64(t.NumPartitions)
		case t.NumPartitions == -1:
			total += int64(c.opt.NumPartitions)
		}
	}
	return total > MaxRecords
}

func (c *core) createTopic(rq *Request, t *kmsg.CreateTopicsRequestTopic, pl *placer) (out kmsg.CreateTopicsResponseTopic, records []metarec.Record, err *apiError) {
	if err := checkTopicName(t.Topic); err != nil {
		return out, nil, err
	}
	if c.img.Topic(t.Topic) != nil {
		return out, nil, fail(kerr.TopicAlreadyExists, "Topic '%s' already exists.", t.Topic)
	}
	if key, ok := collisionKey(t.Topic); ok && len(c.collisions[key]) > 0 {
		return out, nil, fail(kerr.InvalidTopicException, "Topic '%s' collides with existing topic: %s", t.Topic, c.collisions[key][0])
	}
	configs, configRecords, err := c.newTopicConfigs(t)
	if err != nil {
		return out, nil, err
	}
	partitions, err := c.newPartitions(t, pl)
	if err != nil {
		return out, nil, err
	}
	topic := &image.Topic{Name: t.Topic, ID: c.newUUID()}
	records = make([]metarec.Record, 0, 1+len(configRecords)+len(partitions))
	records = append(records, &metarec.Topic{Name: topic.Name, TopicID: topic.ID})
	records = append(records, configRecords...)
	records = append(records, c.clearELR(image.Resource{Type: image.TopicConfig, Name: topic.Name}, configRecords)...)
	for id, p := range partitions {
		records = append(records, p.Record(topic, int32(id)))
	}
	out = kmsg.NewCreateTopicsResponseTopic()
	out.Topic, out.TopicID = topic.Name, topic.ID
	if !c.authorized(rq, opDescribeConfigs, onTopic, topic.Name) {
		out.ConfigErrorCode = kerr.TopicAuthorizationFailed.Code
		out.NumPartitions, out.ReplicationFactor, out.Configs = -1, -1, nil
		return out, records, nil
	}
	out.NumPartitions, out.ReplicationFactor = int32(len(partitions)), int16(len(partitions[0].Replicas))
	if c.opt.EffectiveTopicConfigs != nil && rq.Body.GetVersion() >= 5 {
		out.Configs = c.opt.EffectiveTopicConfigs(c.img, configs)
	}
	if out.Configs == nil {
		out.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	}
	return out, records, nil
}

func (c *core) newTopicConfigs(t *kmsg.CreateTopicsRequestTopic) (map[string]string, []metarec.Record, *apiError) {
	configs := make(map[string]string, len(t.Configs))
	var nulls []string
	for _, cfg := range t.Configs {
		if cfg.Value == nil {
			nulls = append(nulls, cfg.Name)
			continue
		}
		configs[cfg.Name] = *cfg.Value
	}
	if len(nulls) > 0 {
		return nil, nil, fail(kerr.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(nulls, ","))
	}
	if len(configs) > 0 && c.opt.ValidateTopic != nil {
		if err := c.opt.ValidateTopic(configs); err != nil {
			return nil, nil, asAPIError(err, kerr.InvalidConfig)
		}
	}
	var records []metarec.Record
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		value := configs[name]
		records = append(records, &metarec.Config{ResourceType: image.TopicConfig, ResourceName: t.Topic, Name: name, Value: &value})
	}
	return configs, records, nil
}

func (c *core) newPartitions(t *kmsg.CreateTopicsRequestTopic, pl *placer) ([]*image.Partition, *apiError) {
	if len(t.ReplicaAssignment) > 0 {
		return c.assignedPartitions(t)
	}
	if t.ReplicationFactor < -1 || t.ReplicationFactor == 0 {
		return nil, fail(kerr.InvalidReplicationFactor, "Replication factor must be larger than 0, or -1 to use the default value.")
	}
	if t.NumPartitions < -1 || t.NumPartitions == 0 {
		return nil, fail(kerr.InvalidPartitions, "Number of partitions was set to an invalid non-positive value.")
	}
	count, factor := int(t.NumPartitions), int(t.ReplicationFactor)
	if count == -1 {
		count = int(c.opt.NumPartitions)
	}
	if factor == -1 {
		factor = int(c.opt.ReplicationFactor)
	}
	if err := pl.check(factor); err != nil {
		return nil, err
	}
	partitions := make([]*image.Partition, count)
	for i := range partitions {
		replicas := pl.place(i, factor)
		partitions[i] = c.newPartition(replicas, c.activeOf(replicas))
	}
	// The next topic of the request starts where this one ended.
	pl.start += count
	return partitions, nil
}

func (c *core) assignedPartitions(t *kmsg.CreateTopicsRequestTopic) ([]*image.Partition, *apiError) {
	if t.ReplicationFactor != -1 {
		return nil, fail(kerr.InvalidRequest, "A manual partition assignment was specified, but replication factor was not set to -1.")
	}
	if t.NumPartitions != -1 {
		return nil, fail(kerr.InvalidRequest, "A manual partition assignment was specified, but numPartitions was not set to -1.")
	}
	byID := make(map[int32][]int32, len(t.ReplicaAssignment))
	size := 0
	for _, a := range t.ReplicaAssignment {
		if _, twice := byID[a.Partition]; twice {
			return nil, fail(kerr.InvalidReplicaAssignment, "Found multiple manual partition assignments for partition %d", a.Partition)
		}
		if err := c.checkAssignment(a.Replicas, size); err != nil {
			return nil, err
		}
		size = len(a.Replicas)
		isr := c.activeOf(a.Replicas)
		if len(isr) == 0 {
			return nil, fail(kerr.InvalidReplicaAssignment, "All brokers specified in the manual partition assignment for partition %d are fenced or in controlled shutdown.", a.Partition)
		}
		byID[a.Partition] = a.Replicas
	}
	partitions := make([]*image.Partition, len(byID))
	for id := range partitions {
		replicas, ok := byID[int32(id)]
		if !ok {
			return nil, fail(kerr.InvalidReplicaAssignment, "partitions should be a consecutive 0-based integer sequence")
		}
		partitions[id] = c.newPartition(replicas, c.activeOf(replicas))
	}
	return partitions, nil
}

// deleteTopics serves DeleteTopics (semantics.md §13.2).
func (c *core) deleteTopics(rq *Request, body *kmsg.DeleteTopicsRequest) result {
	resp := body.ResponseKind().(*kmsg.DeleteTopicsResponse)
	res := result{response: resp, atomic: true}
	topics := body.Topics
	if body.Version < 6 {
		topics = nil
		for i := range body.TopicNames {
			topics = append(topics, kmsg.DeleteTopicsRequestTopic{Topic: &body.TopicNames[i]})
		}
	}
	add := func(name *string, id ids.UUID, err *apiError) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode, t.ErrorMessage = name, id, err.code(), err.message()
		resp.Topics = append(resp.Topics, t)
	}
	if c.opt.DisableTopicDeletion {
		for _, t := range topics {
			err := fail(kerr.TopicDeletionDisabled, "Topic deletion is disabled.")
			if body.Version < 3 {
				err = fail(kerr.InvalidRequest, "Topic deletion is disabled.")
			}
			add(t.Topic, t.TopicID, err)
		}
		return res
	}
	names, uuids := map[string]int{}, map[ids.UUID]int{}
	for _, t := range topics {
		if t.Topic != nil {
			names[*t.Topic]++
		} else {
			uuids[t.TopicID]++
		}
	}
	answered := map[deleteKey]bool{}
	for _, t := range topics {
		topic, err := c.topicToDelete(rq, t, names, uuids)
		if err == nil && len(res.records) >= MaxRecords {
			err = errTooManyRecords
		}
		key := deleteKey{id: t.TopicID}
		if t.Topic != nil {
			key.name = *t.Topic
		}
		if topic != nil {
			key = deleteKey{id: topic.ID}
		}
		// What appears twice, in whatever form, is refused once.
		if answered[key] {
			continue
		}
		answered[key] = err != nil && err.kerr == kerr.InvalidRequest && (!key.id.IsZero() || t.Topic != nil)
		if err == nil {
			res.records = append(res.records, &metarec.RemoveTopic{TopicID: topic.ID})
			add(&topic.Name, topic.ID, nil)
			continue
		}
		both := topic != nil && names[topic.Name] > 0 && uuids[topic.ID] > 0
		seen := t.Topic == nil && topic != nil && err.kerr != kerr.InvalidRequest && c.authorized(rq, opDescribe, onTopic, topic.Name)
		switch {
		case both:
			add(&topic.Name, topic.ID, err)
		case seen:
			add(&topic.Name, t.TopicID, err)
		default:
			add(t.Topic, t.TopicID, err)
		}
	}
	// Kafka shuffles, so that nobody takes an answer's place for its meaning.
	for i := len(resp.Topics) - 1; i > 0 && c.opt.Random != nil; i-- {
		j := int(c.opt.Random() % uint64(i+1))
		resp.Topics[i], resp.Topics[j] = resp.Topics[j], resp.Topics[i]
	}
	return res
}

// deleteKey is what an entry of DeleteTopics stands for: a topic's id, else what was given.
type deleteKey struct {
	name string
	id   ids.UUID
}

// topicToDelete finds one entry's topic and says why it may not be deleted.
func (c *core) topicToDelete(rq *Request, t kmsg.DeleteTopicsRequestTopic, names map[string]int, uuids map[ids.UUID]int) (*image.Topic, *apiError) {
	id := ids.UUID(t.TopicID)
	switch {
	case t.Topic != nil && !id.IsZero():
		return nil, fail(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case t.Topic == nil && id.IsZero():
		return nil, fail(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case t.Topic != nil:
		topic := c.img.Topic(*t.Topic)
		if names[*t.Topic] > 1 {
			return topic, fail(kerr.InvalidRequest, "Duplicate topic name.")
		}
		if topic != nil && uuids[topic.ID] > 0 {
			return topic, fail(kerr.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
		}
		if !c.authorized(rq, opDelete, onTopic, *t.Topic) {
			return topic, plain(kerr.TopicAuthorizationFailed)
		}
		if topic == nil {
			return nil, plain(kerr.UnknownTopicOrPartition)
		}
		return topic, nil
	}
	topic := c.img.TopicByID(id)
	switch {
	case uuids[id] > 1:
		return topic, fail(kerr.InvalidRequest, "Duplicate topic id.")
	case topic == nil:
		return nil, plain(kerr.UnknownTopicID)
	case names[topic.Name] > 0:
		return topic, fail(kerr.InvalidRequest, "The provided topic name maps to an ID that was already supplied.")
	case !c.authorized(rq, opDelete, onTopic, topic.Name):
		return topic, plain(kerr.TopicAuthorizationFailed)
	}
	return topic, nil
}
