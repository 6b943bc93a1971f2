package admin

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

const brokerLogger = 8

// resource is what both AlterConfigs requests say of one resource, for the checks that
// are a broker's: the rest is the controller's. Spec: semantics.md 14.2.
type resource struct {
	typ     int8
	name    string
	entries []entry
}

type entry struct {
	name   string
	value  *string
	delete bool
}

// incrementalAlterConfigs serves IncrementalAlterConfigs v0-v1 (KIP-339).
func (a *Admin) incrementalAlterConfigs(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.IncrementalAlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	var all []resource
	for _, r := range req.Resources {
		res := resource{typ: int8(r.ResourceType), name: r.ResourceName}
		for _, c := range r.Configs {
			res.entries = append(res.entries, entry{c.Name, c.Value, c.Op == kmsg.IncrementalAlterConfigOpDelete})
		}
		all = append(all, res)
	}
	errs := a.check(all)
	pass := *req
	pass.Resources = nil
	for i, r := range req.Resources {
		if errs[i] == nil {
			pass.Resources = append(pass.Resources, r)
			continue
		}
		o := kmsg.NewIncrementalAlterConfigsResponseResource()
		o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = r.ResourceType, r.ResourceName, api.Code(errs[i]), api.Message(errs[i])
		resp.Resources = append(resp.Resources, o)
	}
	if len(pass.Resources) > 0 {
		sub := *rq
		sub.Body = &pass
		reply := a.forward(ctx, &sub)
		more, ok := reply.Body.(*kmsg.IncrementalAlterConfigsResponse)
		if !ok {
			return reply
		}
		resp.Resources = append(resp.Resources, more.Resources...)
	}
	return api.Done(resp)
}

// alterConfigs serves AlterConfigs v0-v2, which replaces a resource's whole set.
func (a *Admin) alterConfigs(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.AlterConfigsRequest)
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	var all []resource
	for _, r := range req.Resources {
		res := resource{typ: int8(r.ResourceType), name: r.ResourceName}
		for _, c := range r.Configs {
			res.entries = append(res.entries, entry{c.Name, c.Value, false})
		}
		all = append(all, res)
	}
	errs := a.check(all)
	pass := *req
	pass.Resources = nil
	for i, r := range req.Resources {
		if errs[i] == nil {
			pass.Resources = append(pass.Resources, r)
			continue
		}
		o := kmsg.NewAlterConfigsResponseResource()
		o.ResourceType, o.ResourceName, o.ErrorCode, o.ErrorMessage = r.ResourceType, r.ResourceName, api.Code(errs[i]), api.Message(errs[i])
		resp.Resources = append(resp.Resources, o)
	}
	if len(pass.Resources) > 0 {
		sub := *rq
		sub.Body = &pass
		reply := a.forward(ctx, &sub)
		more, ok := reply.Body.(*kmsg.AlterConfigsResponse)
		if !ok {
			return reply
		}
		resp.Resources = append(resp.Resources, more.Resources...)
	}
	return api.Done(resp)
}

// check refuses, per resource, what a broker knows to be wrong.
func (a *Admin) check(all []resource) []error {
	type id struct {
		typ  int8
		name string
	}
	count := map[id]int{}
	for _, r := range all {
		count[id{r.typ, r.name}]++
	}
	errs := make([]error, len(all))
	for i, r := range all {
		switch {
		case count[id{r.typ, r.name}] > 1:
			errs[i] = fmt.Errorf("the resource is there %d times: %w", count[id{r.typ, r.name}], kerr.InvalidRequest)
		case r.typ == brokerLogger:
			errs[i] = fmt.Errorf("log levels of single loggers are not kept here: %w", kerr.InvalidRequest)
		default:
			errs[i] = a.checkOne(r)
		}
	}
	return errs
}

func (a *Admin) checkOne(r resource) error {
	seen := map[string]bool{}
	for _, e := range r.entries {
		if seen[e.name] {
			return fmt.Errorf("key %s is there twice: %w", e.name, kerr.InvalidRequest)
		}
		seen[e.name] = true
		if e.value == nil && !e.delete {
			return fmt.Errorf("key %s has a null value: %w", e.name, kerr.InvalidRequest)
		}
	}
	switch r.typ {
	case image.TopicConfig, image.ClientMetricsConfig, image.GroupConfig:
		return nil
	case image.BrokerConfig:
		return a.checkBroker(r)
	}
	return fmt.Errorf("resource type %d is not one that has configs: %w", r.typ, kerr.InvalidRequest)
}

func (a *Admin) checkBroker(r resource) error {
	if r.name != "" {
		n, err := strconv.ParseInt(r.name, 10, 32)
		if err != nil {
			return fmt.Errorf("broker name %q is not a number: %w", r.name, kerr.InvalidRequest)
		}
		if int32(n) != a.opts.NodeID {
			return fmt.Errorf("this is broker %d; send a change of broker %d to it: %w", a.opts.NodeID, n, kerr.InvalidRequest)
		}
	}
	for _, e := range r.entries {
		k := config.BrokerKey(e.name)
		if k == nil {
			continue // stored as it is, as Kafka does with custom keys
		}
		switch {
		case k.Dynamic == config.ReadOnly:
			return fmt.Errorf("%s cannot change while the broker runs; set it in the file and restart: %w", e.name, kerr.InvalidRequest)
		case k.Dynamic == config.PerBroker && r.name == "" && !strings.HasPrefix(e.name, "listener.name."):
			return fmt.Errorf("%s can only be set for a single broker: %w", e.name, kerr.InvalidRequest)
		case e.value != nil && !e.delete && k.Type != config.List:
			if err := k.Validate(*e.value); err != nil {
				return fmt.Errorf("%v: %w", err, kerr.InvalidRequest)
			}
			if err := a.checkStep(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// steps are the thread counts that may at most double or halve in one change.
var steps = map[string]bool{
	"num.io.threads": true, "num.network.threads": true, "num.replica.fetchers": true, "background.threads": true,
	"num.recovery.threads.per.data.dir": true, "log.cleaner.threads": true,
}

func (a *Admin) checkStep(e entry) error {
	if !steps[e.name] {
		return nil
	}
	now := a.opts.Layers().Int(e.name)
	n, err := strconv.ParseInt(*e.value, 10, 32)
	if err != nil || n > 2*now || n < now/2 {
		return fmt.Errorf("%s=%s: one change may at most double or halve the current %d: %w", e.name, *e.value, now, kerr.InvalidRequest)
	}
	return nil
}
