package controller

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// configOp is one change of one key. value is nil to delete.
type configOp struct {
	name  string
	op    kmsg.IncrementalAlterConfigOp
	value *string
}

const (
	opSet      = kmsg.IncrementalAlterConfigOp(0)
	opUnset    = kmsg.IncrementalAlterConfigOp(1)
	opAppend   = kmsg.IncrementalAlterConfigOp(2)
	opSubtract = kmsg.IncrementalAlterConfigOp(3)
)

// incrementalAlterConfigs serves IncrementalAlterConfigs (semantics.md §14.2); each
// resource is changed wholly or not at all.
func (c *core) incrementalAlterConfigs(rq *Request, body *kmsg.IncrementalAlterConfigsRequest) result {
	resp := body.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	res := result{response: resp, atomic: true}
	count := map[image.Resource]int{}
	for _, r := range body.Resources {
		count[image.Resource{Type: int8(r.ResourceType), Name: r.ResourceName}]++
	}
	for _, r := range body.Resources {
		key := image.Resource{Type: int8(r.ResourceType), Name: r.ResourceName}
		ops := make([]configOp, len(r.Configs))
		for i, cfg := range r.Configs {
			ops[i] = configOp{cfg.Name, cfg.Op, cfg.Value}
		}
		records, err := c.alterResource(rq, key, count[key], ops, false)
		if err == nil && len(res.records)+len(records) > MaxRecords {
			records, err = nil, errTooManyRecords
		}
		res.records = append(res.records, records...)
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = r.ResourceType, r.ResourceName, err.code(), err.message()
		resp.Resources = append(resp.Resources, out)
	}
	if body.ValidateOnly {
		res.records = nil
	}
	return res
}

// alterConfigs serves AlterConfigs, which states a resource's whole set.
func (c *core) alterConfigs(rq *Request, body *kmsg.AlterConfigsRequest) result {
	resp := body.ResponseKind().(*kmsg.AlterConfigsResponse)
	res := result{response: resp, atomic: true}
	count := map[image.Resource]int{}
	for _, r := range body.Resources {
		count[image.Resource{Type: int8(r.ResourceType), Name: r.ResourceName}]++
	}
	for _, r := range body.Resources {
		key := image.Resource{Type: int8(r.ResourceType), Name: r.ResourceName}
		ops := make([]configOp, len(r.Configs))
		for i, cfg := range r.Configs {
			ops[i] = configOp{cfg.Name, opSet, cfg.Value}
		}
		records, err := c.alterResource(rq, key, count[key], ops, true)
		if err == nil && len(res.records)+len(records) > MaxRecords {
			records, err = nil, errTooManyRecords
		}
		res.records = append(res.records, records...)
		out := kmsg.NewAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName, out.ErrorCode, out.ErrorMessage = r.ResourceType, r.ResourceName, err.code(), err.message()
		resp.Resources = append(resp.Resources, out)
	}
	if body.ValidateOnly {
		res.records = nil
	}
	return res
}

func (c *core) alterResource(rq *Request, key image.Resource, times int, ops []configOp, replace bool) ([]metarec.Record, *apiError) {
	if times > 1 {
		return nil, fail(kerr.InvalidRequest, "Each resource must appear at most once.")
	}
	if err := checkOps(ops); err != nil {
		return nil, err
	}
	if err := c.checkResource(rq, key); err != nil {
		return nil, err
	}
	stored := c.img.Config(key.Type, key.Name)
	next := maps.Clone(stored)
	if next == nil {
		next = map[string]string{}
	}
	if replace {
		keep := map[string]bool{}
		for _, op := range ops {
			keep[op.name] = true
		}
		for _, name := range slices.Sorted(maps.Keys(stored)) {
			if !keep[name] {
				ops = append(ops, configOp{name: name, op: opUnset})
			}
		}
	}
	var records []metarec.Record
	for _, op := range ops {
		value, err := c.newValue(key, next, op)
		if err != nil {
			return nil, err
		}
		old, had := stored[op.name]
		if value == nil {
			delete(next, op.name)
		} else {
			next[op.name] = *value
		}
		same := value == nil && !had || value != nil && had && old == *value
		if !same || key.Type == image.BrokerConfig {
			records = append(records, &metarec.Config{ResourceType: key.Type, ResourceName: key.Name, Name: op.name, Value: value})
		}
	}
	if err := c.checkMinISR(key, records); err != nil {
		return nil, err
	}
	if err := c.validateConfigs(key, next); err != nil {
		return nil, err
	}
	return append(records, c.clearELR(key, records)...), nil
}

func checkOps(ops []configOp) *apiError {
	seen := map[string]bool{}
	for _, op := range ops {
		if seen[op.name] {
			return fail(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		seen[op.name] = true
		if op.value == nil && op.op != opUnset {
			return fail(kerr.InvalidRequest, "Null value not supported for : %s", op.name)
		}
	}
	return nil
}

// checkResource applies the rules of a resource's type, name, permission and existence.
func (c *core) checkResource(rq *Request, key image.Resource) *apiError {
	switch key.Type {
	case image.TopicConfig:
		if !c.authorized(rq, opAlterConfigs, onTopic, key.Name) {
			return plain(kerr.TopicAuthorizationFailed)
		}
		if key.Name == "" {
			return fail(kerr.InvalidRequest, "A topic whose configuration is to change needs a name: the empty string is none")
		}
		if err := checkTopicName(key.Name); err != nil {
			return err
		}
		if c.img.Topic(key.Name) == nil {
			return fail(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", key.Name)
		}
	case image.BrokerConfig:
		if !c.onCluster(rq, opAlterConfigs) {
			return plain(kerr.ClusterAuthorizationFailed)
		}
		if key.Name == "" {
			return nil
		}
		id, err := strconv.ParseInt(key.Name, 10, 32)
		if err != nil || id < 0 {
			return fail(kerr.InvalidRequest, "Unable to parse broker name as a base 10 number.")
		}
		if c.img.Broker(int32(id)) == nil {
			return fail(kerr.BrokerIDNotRegistered, "No broker with id %d found.", id)
		}
	case image.ClientMetricsConfig:
		if !c.onCluster(rq, opAlterConfigs) {
			return plain(kerr.ClusterAuthorizationFailed)
		}
		if key.Name == "" {
			return fail(kerr.InvalidRequest, "Subscription name can't be empty")
		}
	case image.GroupConfig:
		if !c.authorized(rq, opAlterConfigs, onGroup, key.Name) {
			return plain(kerr.GroupAuthorizationFailed)
		}
		if key.Name == "" {
			return fail(kerr.InvalidRequest, "Default group resources are not allowed.")
		}
	default:
		return fail(kerr.InvalidRequest, "Unknown resource type %d", key.Type)
	}
	return nil
}

// newValue is what an operation makes of the current value; nil deletes.
func (c *core) newValue(key image.Resource, current map[string]string, op configOp) (*string, *apiError) {
	switch op.op {
	case opSet:
		return op.value, nil
	case opUnset:
		return nil, nil
	case opAppend, opSubtract:
	default:
		return nil, fail(kerr.InvalidRequest, "Unknown operation type %d for config %s.", op.op, op.name)
	}
	verb := map[kmsg.IncrementalAlterConfigOp]string{opAppend: "APPEND", opSubtract: "SUBTRACT"}[op.op]
	if c.opt.ListKey == nil || !c.opt.ListKey(key.Type, op.name) {
		return nil, fail(kerr.InvalidConfig, "Can't %s to key %s because its type is not LIST.", verb, op.name)
	}
	base, ok := current[op.name]
	if !ok && c.opt.Default != nil {
		base, _ = c.opt.Default(key.Type, op.name)
	}
	list := splitList(base)
	for _, item := range splitList(*op.value) {
		at := slices.Index(list, item)
		switch {
		case op.op == opAppend && at < 0:
			list = append(list, item)
		case op.op == opSubtract && at >= 0:
			list = slices.Delete(list, at, at+1)
		}
	}
	joined := strings.Join(list, ",")
	return &joined, nil
}

func splitList(s string) []string {
	if strings.TrimSpace(s) == "" {
		return nil
	}
	items := strings.Split(s, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	return items
}

// checkMinISR keeps one cluster-wide minimum under ELR: what the ELR means rests on it.
func (c *core) checkMinISR(key image.Resource, records []metarec.Record) *apiError {
	if key.Type != image.BrokerConfig || !c.img.ELREnabled() {
		return nil
	}
	for _, r := range records {
		cfg := r.(*metarec.Config)
		switch {
		case cfg.Name != minISRKey:
		case key.Name != "":
			return fail(kerr.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
		case cfg.Value == nil:
			return fail(kerr.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
		}
	}
	return nil
}

// clearELR: a new minimum makes the recorded ELRs meaningless.
func (c *core) clearELR(key image.Resource, records []metarec.Record) []metarec.Record {
	changed := slices.ContainsFunc(records, func(r metarec.Record) bool { return r.(*metarec.Config).Name == minISRKey })
	switch {
	case !changed || !c.img.ELREnabled():
	case key.Type == image.TopicConfig, key.Type == image.BrokerConfig && key.Name == "":
		name := ""
		if key.Type == image.TopicConfig {
			name = key.Name
		}
		return []metarec.Record{&metarec.ClearElr{TopicName: name}}
	}
	return nil
}

func (c *core) validateConfigs(key image.Resource, configs map[string]string) *apiError {
	var err error
	switch {
	case key.Type == image.TopicConfig && c.opt.ValidateTopic != nil:
		err = c.opt.ValidateTopic(configs)
	case key.Type == image.BrokerConfig && c.opt.ValidateBroker != nil:
		err = c.opt.ValidateBroker(key.Name, configs)
	case key.Type == image.GroupConfig && c.opt.ValidateGroup != nil:
		err = c.opt.ValidateGroup(configs)
	case key.Type == image.ClientMetricsConfig && c.opt.ValidateClientMetrics != nil:
		err = c.opt.ValidateClientMetrics(configs)
	}
	if err != nil {
		return asAPIError(err, kerr.InvalidConfig)
	}
	return nil
}
