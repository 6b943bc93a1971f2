package meta

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
)

// brokerLogger is the resource type of log levels.
const brokerLogger = 8

// describeConfigs serves DescribeConfigs v1-v4 (KIP-133, KIP-226, KIP-569). Spec:
// semantics.md 14.1.
func (m *Meta) describeConfigs(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	img := m.opts.Image()
	for i := range req.Resources {
		r := &req.Resources[i]
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = r.ResourceType, r.ResourceName
		names := r.ConfigNames
		if len(names) == 0 {
			names = nil // an empty list means all (measured.md 19)
		}
		entries, err := m.entries(img, int8(r.ResourceType), r.ResourceName, names)
		out.ErrorCode = api.Code(err)
		out.ErrorMessage = kmsg.StringPtr("")
		if msg := api.Message(err); msg != nil {
			out.ErrorMessage = msg
		} else if err != nil {
			out.ErrorMessage = kmsg.StringPtr(err.Error())
		}
		for _, e := range entries {
			out.Configs = append(out.Configs, configEntry(req, e))
		}
		resp.Resources = append(resp.Resources, out)
	}
	return api.Done(resp)
}

func (m *Meta) entries(img *image.Image, typ int8, name string, names []string) ([]config.Entry, error) {
	layers := m.opts.Layers()
	switch typ {
	case image.TopicConfig:
		if !validName(name) {
			return nil, fmt.Errorf("topic name %q is not valid: %w", name, kerr.InvalidTopicException)
		}
		if img.Topic(name) == nil {
			return nil, kerr.UnknownTopicOrPartition
		}
		return layers.DescribeTopic(img.Config(typ, name), names), nil
	case image.BrokerConfig:
		if name == "" {
			return config.DescribeDynamic(img.Config(typ, ""), config.SourceDynamicCluster, names), nil
		}
		if err := m.thisNode(name); err != nil {
			return nil, err
		}
		return layers.DescribeBroker(names), nil
	case brokerLogger:
		return nil, fmt.Errorf("log levels of single loggers are not kept here: %w", kerr.InvalidRequest)
	case image.ClientMetricsConfig, image.GroupConfig:
		if name == "" {
			return nil, fmt.Errorf("the resource name must not be empty: %w", kerr.InvalidRequest)
		}
		if typ == image.GroupConfig {
			return layers.DescribeGroup(img.Config(typ, name), names), nil
		}
		return config.DescribeClientMetrics(img.Config(typ, name), names), nil
	}
	return nil, fmt.Errorf("resource type %d is not one that has configs: %w", typ, kerr.InvalidRequest)
}

// thisNode checks a broker resource's name; "01" means 1 (measured.md 19).
func (m *Meta) thisNode(name string) error {
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return fmt.Errorf("broker name %q is not a number: %w", name, kerr.InvalidRequest)
	}
	if int32(n) != m.opts.NodeID {
		return fmt.Errorf("broker %d was asked for the configuration of broker %s; send that to broker %s itself: %w", m.opts.NodeID, name, name, kerr.InvalidRequest)
	}
	return nil
}

func configEntry(req *kmsg.DescribeConfigsRequest, e config.Entry) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.ReadOnly, out.IsSensitive = e.Name, e.Value, e.ReadOnly, e.Sensitive
	out.Source, out.ConfigType = kmsg.ConfigSource(e.Source), kmsg.ConfigType(e.Type)
	out.IsDefault = e.Source == config.SourceDefault
	if req.IncludeSynonyms {
		for _, s := range e.Synonyms {
			syn := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
			syn.Name, syn.Value, syn.Source = s.Name, s.Value, kmsg.ConfigSource(s.Source)
			out.ConfigSynonyms = append(out.ConfigSynonyms, syn)
		}
	}
	if req.IncludeDocumentation {
		out.Documentation = kmsg.StringPtr(e.Doc)
	}
	return out
}

// listed are the resource types of ListConfigResources.
var listed = []int8{image.TopicConfig, image.BrokerConfig, brokerLogger, image.ClientMetricsConfig, image.GroupConfig}

// listConfigResources serves ListConfigResources v0-v1 (KIP-714, KIP-1142).
func (m *Meta) listConfigResources(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	want := req.ResourceTypes
	if req.Version == 0 {
		want = []int8{image.ClientMetricsConfig}
	} else if len(want) == 0 {
		want = listed
	}
	for _, t := range want {
		if !slices.Contains(listed, t) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return api.Done(resp)
		}
	}
	img := m.opts.Image()
	add := func(typ int8, name string) {
		if slices.Contains(want, typ) {
			c := kmsg.NewListConfigResourcesResponseConfigResource()
			c.Name, c.Type = name, typ
			resp.ConfigResources = append(resp.ConfigResources, c)
		}
	}
	for t := range img.Topics() {
		add(image.TopicConfig, t.Name)
	}
	for _, b := range img.Brokers() {
		id := strconv.Itoa(int(b.ID))
		add(image.BrokerConfig, id)
		add(brokerLogger, id)
	}
	for r := range img.Configs() {
		if r.Type == image.ClientMetricsConfig || r.Type == image.GroupConfig {
			add(r.Type, r.Name)
		}
	}
	return api.Done(resp)
}
