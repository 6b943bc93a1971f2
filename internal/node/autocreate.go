package node

import (
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/serve/api"
)

// autoCreator makes topics in the background for clients that ask about them, one
// creation per name at a time (serve/handle/meta's AutoCreator).
type autoCreator struct {
	n  *Node
	mu struct {
		sync.Mutex
		busy map[string]bool
	}
}

// AutoCreate creates a topic with the broker's defaults, in the caller's name.
func (a *autoCreator) AutoCreate(rq *api.Request, topic string) {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = topic, -1, -1
	static := a.n.conf.Layers.Static
	if v, err := strconv.ParseInt(static["num.partitions"], 10, 32); err == nil {
		t.NumPartitions = int32(v)
	}
	if v, err := strconv.ParseInt(static["default.replication.factor"], 10, 16); err == nil {
		t.ReplicationFactor = int16(v)
	}
	a.create(rq.Peer, rq.ClientID, t)
}

// CreateInternal creates a coordinator's topic with its own configuration.
func (a *autoCreator) CreateInternal(topic string) {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic = topic
	l := a.n.layers()
	set := func(k, v string) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = k, &v
		t.Configs = append(t.Configs, c)
	}
	if topic != ids.ConsumerOffsetsTopic {
		return // no other coordinator is served
	}
	t.NumPartitions, t.ReplicationFactor = int32(l.Int("offsets.topic.num.partitions")), int16(l.Int("offsets.topic.replication.factor"))
	set("compression.type", "producer")
	set("cleanup.policy", "compact")
	set("segment.bytes", l.String("offsets.topic.segment.bytes"))
	a.create(api.Peer{Principal: api.Anonymous}, "", t)
}

func (a *autoCreator) create(peer api.Peer, clientID string, t kmsg.CreateTopicsRequestTopic) {
	a.mu.Lock()
	if a.mu.busy[t.Topic] {
		a.mu.Unlock()
		return
	}
	a.mu.busy[t.Topic] = true
	a.mu.Unlock()
	body := kmsg.NewPtrCreateTopicsRequest()
	body.Version = 7
	body.TimeoutMillis = int32(a.n.layers().Int("request.timeout.ms"))
	body.Topics = append(body.Topics, t)
	rq := &api.Request{Peer: peer, Body: body}
	rq.ClientID = clientID
	a.n.tasks.Go(func() {
		defer func() {
			a.mu.Lock()
			delete(a.mu.busy, t.Topic)
			a.mu.Unlock()
		}()
		resp, err := a.n.forwarder.Forward(a.n.ctx, rq)
		if err == nil {
			for _, o := range resp.(*kmsg.CreateTopicsResponse).Topics {
				if o.ErrorCode != kerr.TopicAlreadyExists.Code {
					err = kerr.ErrorForCode(o.ErrorCode)
				}
			}
		}
		if err != nil && a.n.ctx.Err() == nil {
			a.n.opts.Log.Warn("cannot create a topic that a client asked for", "topic", t.Topic, "err", err)
		}
	})
}
