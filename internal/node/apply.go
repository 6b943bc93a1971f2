package node

import (
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/config"
	"runnel/internal/meta/controller"
	"runnel/internal/meta/image"
)

// layers is the configuration in force.
func (n *Node) layers() *config.Layers { return n.current.Load() }

// applyConfigs puts dynamic broker values in force. It is the first subscriber: what
// follows sees the values of the same image.
func (n *Node) applyConfigs(delta *image.Delta, img *image.Image) {
	for r := range delta.Configs {
		if r.Type != image.BrokerConfig {
			continue
		}
		n.current.Store(n.conf.Layers.With(img.Config(image.BrokerConfig, strconv.Itoa(int(n.conf.NodeID))), img.Config(image.BrokerConfig, "")))
		limits := n.limits()
		for _, s := range n.servers {
			s.SetLimits(limits)
		}
		return
	}
}

// applyRoles gives this broker's replicas, then its coordinators, their roles. The replay
// at start is not history to live through again: roles begin with the first image that
// holds all that is committed, and only by that one are logs on disk judged stray.
func (n *Node) applyRoles(delta *image.Delta, img *image.Image) {
	if n.replicas == nil {
		return
	}
	select {
	case <-n.applied:
	default:
		if img.Offset()+1 < n.quorum.View().HighWatermark {
			return
		}
		n.replicas.SetAside(img)
		delta = image.FromSnapshot(image.Empty(), img)
		defer close(n.applied)
	}
	n.replicas.Apply(img, delta)
	n.groups.apply(delta, img)
}

// applyRegistration tells the broker's life what the cluster knows of it.
func (n *Node) applyRegistration(delta *image.Delta, img *image.Image) {
	life := n.alive.Load()
	if life == nil {
		return
	}
	if d, ok := delta.Brokers[n.conf.NodeID]; ok && d.New == nil && d.Old != nil {
		life.Unregistered(d.Old.Epoch)
	}
	life.CaughtUp(img.Offset())
}

func (n *Node) requestFailed(rq kmsg.Request, err error) {
	if n.ctx.Err() == nil {
		n.opts.Log.Warn("a request to the active controller failed and is tried again", "api", kmsg.NameForKey(rq.Key()), "err", err)
	}
}

// controllerOptions wire the controller to the key table and the quorum.
func (n *Node) controllerOptions() controller.Options {
	l := n.layers()
	key := func(typ int8, name string) *config.Key {
		switch typ {
		case image.TopicConfig:
			return config.TopicKey(name)
		case image.GroupConfig:
			return config.GroupKey(name)
		case image.ClientMetricsConfig:
			return config.ClientMetricsKey(name)
		}
		return config.BrokerKey(name)
	}
	return controller.Options{
		NodeID: n.conf.NodeID, ClusterID: n.store.ClusterID(), Log: n.quorum, Now: n.opts.Now, Random: n.random.stream(), Logger: n.opts.Log,
		NumPartitions: int32(l.Int("num.partitions")), ReplicationFactor: int16(l.Int("default.replication.factor")),
		MinISR: int(l.Int("min.insync.replicas")), UncleanElection: l.Bool("unclean.leader.election.enable"),
		DisableTopicDeletion: !l.Bool("delete.topic.enable"), SessionTimeout: msOf(l, "broker.session.timeout.ms"),
		RebalanceInterval: 1000 * msOf(l, "leader.imbalance.check.interval.seconds"), DisableLeaderRebalancing: !l.Bool("auto.leader.rebalance.enable"),
		ValidateTopic: config.ValidateTopic, ValidateGroup: config.ValidateGroup, ValidateClientMetrics: config.ValidateClientMetrics,
		ValidateBroker: func(_ string, values map[string]string) error {
			for name, v := range values {
				if k := config.BrokerKey(name); k != nil {
					if err := k.Validate(v); err != nil {
						return err
					}
				}
			}
			return nil
		},
		ListKey: func(typ int8, name string) bool { k := key(typ, name); return k != nil && k.Type == config.List },
		Default: func(typ int8, name string) (string, bool) {
			if typ == image.TopicConfig {
				v, _, ok := n.layers().TopicValue(nil, name)
				return v, ok
			}
			if k := key(typ, name); k != nil && k.HasDefault() {
				return k.Default, true
			}
			return "", false
		},
		EffectiveTopicConfigs: n.effectiveTopicConfigs,
		QuorumVoters: func() []int32 {
			var out []int32
			for _, v := range n.quorum.View().Voters {
				out = append(out, v.VoterID)
			}
			return out
		},
		Fatal: n.fatal,
		Leading: func(_ int32, active bool) {
			n.deciding.Store(active)
			n.leads.fire()
		},
	}
}

// effectiveTopicConfigs is what a CreateTopics answer says of a topic's configuration.
func (n *Node) effectiveTopicConfigs(img *image.Image, overrides map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	layers := n.conf.Layers.With(img.Config(image.BrokerConfig, strconv.Itoa(int(n.conf.NodeID))), img.Config(image.BrokerConfig, ""))
	var out []kmsg.CreateTopicsResponseTopicConfig
	for _, e := range layers.DescribeTopic(overrides, nil) {
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Value, c.Source, c.IsSensitive, c.ReadOnly = e.Name, e.Value, int8(e.Source), e.Sensitive, e.ReadOnly
		out = append(out, c)
	}
	return out
}

func msOf(l *config.Layers, key string) time.Duration {
	return time.Duration(l.Int(key)) * time.Millisecond
}
