package node

import (
	"time"

	"runnel/internal/coord/group"
	"runnel/internal/coord/runtime"
	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"
	handle "runnel/internal/serve/handle/groups"
)

// groups ties the group coordinator to the partitions of its topic.
type groups struct {
	n       *Node
	service *group.Service
}

func newGroups(n *Node) *groups {
	g := &groups{n: n}
	g.service = group.NewService(group.Options{
		Lookup: g, Config: g.config, Random: n.fill,
		Runtime: runtime.Options{
			Now: n.opts.Now, CommitTimeout: msOf(n.layers(), "offsets.commit.timeout.ms"), Logger: n.opts.Log,
			LoadBuffer: int(n.layers().Int("offsets.load.buffer.size")),
		},
	})
	return g
}

func (g *groups) register(r *api.Registry) { handle.New(g.service, g.n.feed.Image).Register(r) }

func (g *groups) close() { g.service.Close() }

// OffsetsPartitions is group.Lookup.
func (g *groups) OffsetsPartitions() int32 {
	if t := g.n.feed.Image().Topic(ids.ConsumerOffsetsTopic); t != nil {
		return int32(len(t.Partitions))
	}
	return 0
}

func (g *groups) config() *group.Config {
	l := g.n.layers()
	return &group.Config{
		MinSession: msOf(l, "group.min.session.timeout.ms"), MaxSession: msOf(l, "group.max.session.timeout.ms"),
		InitialDelay: msOf(l, "group.initial.rebalance.delay.ms"), MaxSize: int(l.Int("group.max.size")),
		MaxMetadata: int(l.Int("offset.metadata.max.bytes")), Retention: time.Duration(l.Int("offsets.retention.minutes")) * time.Minute,
		RetentionCheck: msOf(l, "offsets.retention.check.interval.ms"), ConsumerSession: msOf(l, "group.consumer.session.timeout.ms"),
	}
}

// apply follows leadership of the offsets topic's partitions, and tells of topics that
// are gone.
func (g *groups) apply(delta *image.Delta, img *image.Image) {
	var gone []string
	for _, d := range delta.Topics {
		if d.Deleted() {
			gone = append(gone, d.Old.Name)
		}
		g.follow(d)
	}
	if len(gone) > 0 {
		g.service.TopicsDeleted(gone)
	}
}

func (g *groups) follow(d *image.TopicDelta) {
	if d.Deleted() {
		if d.Old.Name == ids.ConsumerOffsetsTopic {
			for i := range d.Old.Partitions {
				g.service.Resign(int32(i))
			}
		}
		return
	}
	if d.New.Name != ids.ConsumerOffsetsTopic {
		return
	}
	for _, i := range d.Changed {
		want := d.New.Partitions[i]
		p := g.n.replicas.Get(ids.TopicPartition{Topic: d.New.Name, Partition: i})
		if p == nil || want.Leader != g.n.conf.NodeID {
			g.service.Resign(i)
			continue
		}
		g.service.Lead(i, want.LeaderEpoch, p)
	}
}
