package controller

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

type electionMode int

const (
	electOnline    electionMode = iota // keep the leader while it is valid
	electPreferred                     // move to the first replica if it is valid
	electUnclean                       // as online, and any live replica rather than none
)

// change is the change of one partition in the making (metadata-records.md §8): the
// caller states targets, build elects and keeps ISR, ELR and epochs to their rules.
type change struct {
	c     *core
	topic *image.Topic
	id    int32
	p     *image.Partition

	mode       electionMode
	acceptable func(id int32) bool
	// uncleanShutdown are replicas that may have lost data: never kept in the ELR.
	uncleanShutdown []int32

	isr, replicas, removing, adding, elr []int32

	directories []ids.UUID // of replicas; nil keeps what they have
	recovering  bool
}

func (c *core) change(t *image.Topic, id int32) *change {
	p := t.Partitions[id]
	ch := &change{
		c: c, topic: t, id: id, p: p, isr: p.ISR, replicas: p.Replicas, removing: p.Removing, adding: p.Adding,
		elr: p.ELR, recovering: p.Recovering,
	}
	ch.acceptable = func(id int32) bool { return c.acceptable(p, id) }
	if c.uncleanElection(t.Name) {
		ch.mode = electUnclean
	}
	return ch
}

// build gives the record, nil when nothing would change.
func (ch *change) build() *metarec.PartitionChange {
	r := metarec.NewPartitionChange()
	r.PartitionID, r.TopicID = ch.id, ch.topic.ID
	elr := ch.c.img.ELREnabled()
	ch.completeReassignment()
	if elr {
		ch.targetELR()
	}
	clean := ch.elect(r)
	if r.ISR == nil && (len(ch.isr) > 0 || elr) && !slices.Equal(ch.isr, ch.p.ISR) {
		r.ISR = present(ch.isr)
	}
	ch.bumpEpoch(r)
	if !elr || !clean {
		ch.elr = nil
	}
	if !slices.Equal(ch.elr, ch.p.ELR) {
		r.EligibleLeaderReplicas = present(ch.elr)
	}
	ch.lastKnownLeader(r, elr)
	ch.assignment(r)
	if ch.recovering != ch.p.Recovering {
		r.LeaderRecoveryState = 0
		if ch.recovering {
			r.LeaderRecoveryState = 1
		}
	}
	if setFields(r) == (fields{}) {
		return nil
	}
	return r
}

// fields tells what of a change is set.
type fields struct{ isr, leader, replicas, removing, adding, recovery, directories, elr, known bool }

func setFields(r *metarec.PartitionChange) fields {
	return fields{
		r.ISR != nil, r.Leader != metarec.NoLeaderChange, r.Replicas != nil, r.RemovingReplicas != nil, r.AddingReplicas != nil,
		r.LeaderRecoveryState != metarec.NoRecoveryChange, r.Directories != nil, r.EligibleLeaderReplicas != nil, r.LastKnownElr != nil,
	}
}

// present makes an empty list that is written rather than left out.
func present(s []int32) []int32 {
	if s == nil {
		return []int32{}
	}
	return s
}

// completeReassignment ends a reassignment whose target replicas are all in the ISR.
func (ch *change) completeReassignment() {
	if len(ch.removing) == 0 && len(ch.adding) == 0 {
		return
	}
	target := without(ch.replicas, ch.removing...)
	isr := without(ch.isr, ch.removing...)
	if len(target) == 0 || !containsAll(isr, target) {
		return
	}
	if ch.directories != nil {
		ch.directories = dirsOf(ch.replicas, ch.directories, target)
	}
	ch.replicas, ch.isr, ch.removing, ch.adding = target, isr, nil, nil
}

// targetELR keeps those that were in the ISR, and so have everything, while the ISR is
// below its minimum.
func (ch *change) targetELR() {
	minISR := min(ch.c.minISR(ch.topic.Name), len(ch.replicas))
	if len(ch.isr) >= minISR {
		ch.elr = nil
		return
	}
	var elr []int32
	for _, id := range ch.replicas {
		was := slices.Contains(ch.p.ELR, id) || slices.Contains(ch.p.ISR, id)
		if was && !slices.Contains(ch.isr, id) && !slices.Contains(ch.uncleanShutdown, id) {
			elr = append(elr, id)
		}
	}
	ch.elr = elr
}

// elect sets the leader if it changes; false for an unclean election.
func (ch *change) elect(r *metarec.PartitionChange) (clean bool) {
	leader, clean := ch.choose()
	if leader == ch.p.Leader {
		return true
	}
	r.Leader = leader
	if !clean {
		ch.isr = []int32{leader}
		r.ISR = ch.isr
		ch.recovering = true
		return false
	}
	if slices.Contains(ch.elr, leader) {
		ch.isr = []int32{leader}
		ch.elr = without(ch.elr, leader)
	}
	return true
}

func (ch *change) choose() (leader int32, clean bool) {
	if ch.mode == electPreferred && ch.valid(ch.replicas[0]) {
		return ch.replicas[0], true
	}
	if ch.valid(ch.p.Leader) {
		return ch.p.Leader, true
	}
	if at := slices.IndexFunc(ch.replicas, ch.valid); at >= 0 {
		return ch.replicas[at], true
	}
	if ch.canElectLastKnown() {
		return ch.p.LastKnownELR[0], false
	}
	if ch.mode == electUnclean {
		if at := slices.IndexFunc(ch.replicas, ch.acceptable); at >= 0 {
			return ch.replicas[at], false
		}
	}
	return image.NoLeader, true
}

// valid reports a replica that has every committed record and may lead.
func (ch *change) valid(id int32) bool {
	if !slices.Contains(ch.replicas, id) {
		return false
	}
	complete := slices.Contains(ch.isr, id) || len(ch.isr) == 0 && slices.Contains(ch.elr, id)
	return complete && ch.acceptable(id)
}

// canElectLastKnown: with neither ISR nor ELR left, the last leader has the most to give.
// It must be active like any other (KAFKA-19522).
func (ch *change) canElectLastKnown() bool {
	return ch.c.img.ELREnabled() && len(ch.isr) == 0 && len(ch.elr) == 0 && len(ch.p.LastKnownELR) == 1 &&
		slices.Contains(ch.replicas, ch.p.LastKnownELR[0]) && ch.acceptable(ch.p.LastKnownELR[0])
}

// bumpEpoch starts a new leader epoch under the same leader where followers must notice:
// a replica was removed, or the ISR shrank before 3.6-IV0.
func (ch *change) bumpEpoch(r *metarec.PartitionChange) {
	if r.Leader != metarec.NoLeaderChange {
		return
	}
	removed := !containsAll(ch.replicas, ch.p.Replicas)
	shrank := r.ISR != nil && !containsAll(r.ISR, ch.p.ISR) && ch.c.img.MetadataVersion() < feature.NoEpochBumpOnShrink
	if removed || shrank {
		r.Leader = ch.p.Leader
	}
}

func (ch *change) lastKnownLeader(r *metarec.PartitionChange, elr bool) {
	known := ch.p.LastKnownELR
	willLead := r.Leader >= 0 || r.Leader == metarec.NoLeaderChange && ch.p.Leader >= 0
	switch {
	case !elr || willLead:
		if len(known) > 0 {
			r.LastKnownElr = []int32{}
		}
	case r.Leader == image.NoLeader && len(known) == 0 && ch.p.Leader >= 0:
		r.LastKnownElr = []int32{ch.p.Leader}
	}
}

func (ch *change) assignment(r *metarec.PartitionChange) {
	if !slices.Equal(ch.removing, ch.p.Removing) {
		r.RemovingReplicas = present(ch.removing)
	}
	if !slices.Equal(ch.adding, ch.p.Adding) {
		r.AddingReplicas = present(ch.adding)
	}
	if !slices.Equal(ch.replicas, ch.p.Replicas) {
		r.Replicas = ch.replicas
		if ch.directories == nil {
			ch.directories = make([]ids.UUID, len(ch.replicas))
			for n, id := range ch.replicas {
				if at := slices.Index(ch.p.Replicas, id); at >= 0 {
					ch.directories[n] = ch.p.Directories[at]
				} else {
					ch.directories[n] = ch.c.defaultDir(id)
				}
			}
		}
	}
	if ch.directories != nil && !slices.Equal(ch.directories, ch.p.Directories) && ch.c.img.MetadataVersion() >= feature.DirectoryAssignment {
		r.Directories = ch.directories
	}
}

func dirsOf(replicas []int32, dirs []ids.UUID, of []int32) []ids.UUID {
	out := make([]ids.UUID, len(of))
	for n, id := range of {
		out[n] = dirs[slices.Index(replicas, id)]
	}
	return out
}

// removal says which broker leaves ISRs. A broker that stopped uncleanly also leaves ELRs, as
// it may have lost what it had.
type removal struct {
	broker  int32
	unclean bool
}

// removeFromISRs gives the changes of every partition that a broker's going touches.
func (c *core) removeFromISRs(rm removal) []metarec.Record {
	var records []metarec.Record
	for t := range c.img.Topics() {
		for id, p := range t.Partitions {
			if !slices.Contains(p.ISR, rm.broker) && p.Leader != rm.broker && !(rm.unclean && slices.Contains(p.ELR, rm.broker)) {
				continue
			}
			ch := c.change(t, int32(id))
			ch.isr = without(p.ISR, rm.broker)
			ch.acceptable = func(id int32) bool { return id != rm.broker && c.acceptable(p, id) }
			if rm.unclean {
				ch.uncleanShutdown = []int32{rm.broker}
			}
			if r := ch.build(); r != nil {
				records = append(records, r)
			}
		}
	}
	return records
}

// electLeaderless elects for partitions without a leader; a broker that is being unfenced in the
// same batch counts as active.
func (c *core) electLeaderless(unfencing int32) []metarec.Record {
	var records []metarec.Record
	for t := range c.img.Topics() {
		for id, p := range t.Partitions {
			if p.Leader >= 0 {
				continue
			}
			ch := c.change(t, int32(id))
			ch.acceptable = func(id int32) bool {
				if id == unfencing {
					b := c.img.Broker(id)
					return !b.ShuttingDown && b.HasOnlineDir(directory(p, id))
				}
				return c.acceptable(p, id)
			}
			if r := ch.build(); r != nil {
				records = append(records, r)
			}
		}
	}
	return records
}

// rebalanceLeaders moves up to max leaderships back to preferred replicas.
func (c *core) rebalanceLeaders(max int) []metarec.Record {
	var records []metarec.Record
	for t := range c.img.Topics() {
		for id, p := range t.Partitions {
			if len(records) >= max {
				return records
			}
			if p.Leader == p.Replicas[0] || !slices.Contains(p.ISR, p.Replicas[0]) || !c.acceptable(p, p.Replicas[0]) {
				continue
			}
			ch := c.change(t, int32(id))
			ch.mode = electPreferred
			if r := ch.build(); r != nil {
				records = append(records, r)
			}
		}
	}
	return records
}

func (c *core) electLeaders(rq *Request, body *kmsg.ElectLeadersRequest) result {
	resp := body.ResponseKind().(*kmsg.ElectLeadersResponse)
	res := result{response: resp, atomic: true}
	if !c.onCluster(rq, opAlter) {
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return res
	}
	mode := electPreferred
	switch {
	case body.Version >= 1 && body.ElectionType == 1:
		mode = electUnclean
	case body.ElectionType != 0 && body.Version >= 1:
		refuseElection(body, resp, fail(kerr.InvalidRequest, "Unknown election type %d", body.ElectionType))
		return res
	}
	all := body.Topics == nil
	topics := body.Topics
	if all {
		for t := range c.img.Topics() {
			rt := kmsg.ElectLeadersRequestTopic{Topic: t.Name}
			for id := range t.Partitions {
				rt.Partitions = append(rt.Partitions, int32(id))
			}
			topics = append(topics, rt)
		}
	}
	for _, rt := range topics {
		out := kmsg.ElectLeadersResponseTopic{Topic: rt.Topic}
		for _, id := range rt.Partitions {
			r, err := c.electOne(rt.Topic, id, mode)
			if all && err != nil && err.kerr == kerr.ElectionNotNeeded {
				continue
			}
			if r != nil {
				res.records = append(res.records, r)
			}
			op := kmsg.NewElectLeadersResponseTopicPartition()
			op.Partition, op.ErrorCode, op.ErrorMessage = id, err.code(), err.message()
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
	res.atomic = len(res.records) <= MaxRecords
	return res
}

// refuseElection gives all of a request the same error.
func refuseElection(body *kmsg.ElectLeadersRequest, resp *kmsg.ElectLeadersResponse, err *apiError) {
	resp.ErrorCode = err.code()
	for _, rt := range body.Topics {
		out := kmsg.ElectLeadersResponseTopic{Topic: rt.Topic}
		for _, id := range rt.Partitions {
			op := kmsg.NewElectLeadersResponseTopicPartition()
			op.Partition, op.ErrorCode, op.ErrorMessage = id, err.code(), err.message()
			out.Partitions = append(out.Partitions, op)
		}
		resp.Topics = append(resp.Topics, out)
	}
}

func (c *core) electOne(topic string, id int32, mode electionMode) (*metarec.PartitionChange, *apiError) {
	t := c.img.Topic(topic)
	if t == nil {
		return nil, fail(kerr.UnknownTopicOrPartition, "No such topic as %s", topic)
	}
	p := t.Partition(id)
	if p == nil {
		return nil, fail(kerr.UnknownTopicOrPartition, "No such partition as %s-%d", topic, id)
	}
	if mode == electPreferred && p.Leader == p.Replicas[0] || mode == electUnclean && p.Leader >= 0 {
		return nil, plain(kerr.ElectionNotNeeded)
	}
	ch := c.change(t, id)
	ch.mode = mode
	if r := ch.build(); r != nil && r.Leader >= 0 && (mode != electPreferred || r.Leader == p.Replicas[0]) {
		return r, nil
	}
	if mode == electPreferred {
		return nil, plain(kerr.PreferredLeaderNotAvailable)
	}
	return nil, plain(kerr.EligibleLeadersNotAvailable)
}
