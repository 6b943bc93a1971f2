package controller

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
)

// metadata-records.md §6, the table of registration checks.
func TestRegistrationRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*kmsg.BrokerRegistrationRequest)
		code   *kerr.Error
	}{
		"cluster id":          {func(r *kmsg.BrokerRegistrationRequest) { r.ClusterID = "x" }, kerr.InconsistentClusterID},
		"live other":          {func(r *kmsg.BrokerRegistrationRequest) { r.BrokerID = 1 }, kerr.DuplicateBrokerRegistration},
		"migrating":           {func(r *kmsg.BrokerRegistrationRequest) { r.IsMigratingZkBroker = true }, kerr.BrokerIDNotRegistered},
		"no dirs":             {func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = nil }, kerr.InvalidRegistration},
		"reserved dir":        {func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = [][16]byte{ids.DirLost} }, kerr.InvalidRegistration},
		"dir twice":           {func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = [][16]byte{{5}, {5}} }, kerr.InvalidRegistration},
		"another broker's":    {func(r *kmsg.BrokerRegistrationRequest) { r.LogDirs = [][16]byte{{0xd, 1}} }, kerr.InvalidRegistration},
		"level too low":       {func(r *kmsg.BrokerRegistrationRequest) { r.Features[0].MaxSupportedVersion = 32 }, kerr.UnsupportedVersion},
		"finalized, absent":   {func(r *kmsg.BrokerRegistrationRequest) { r.Features = r.Features[:3] }, kerr.UnsupportedVersion},
		"no metadata.version": {func(r *kmsg.BrokerRegistrationRequest) { r.Features = r.Features[1:] }, kerr.InvalidRegistration},
	} {
		s := newSim(t, 1)
		rq := registration(2, 9, -1)
		c.change(rq)
		resp, records := s.decide(rq)
		if r := resp.(*kmsg.BrokerRegistrationResponse); r.ErrorCode != c.code.Code || r.BrokerEpoch != -1 || len(records) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// The session's end, a controlled shutdown, or sharing the controller's process lets a new
// incarnation in.
func TestNewIncarnation(t *testing.T) {
	s := newSim(t, 2)
	if _, code := s.register(1, 2, -1); code != kerr.DuplicateBrokerRegistration.Code {
		t.Errorf("live session: %d", code)
	}
	s.now = s.now.Add(9 * time.Second)
	next := s.c.next
	if epoch, code := s.register(1, 2, -1); code != 0 || epoch != next {
		t.Errorf("after the session: epoch %d code %d", epoch, code)
	}
	own := newSim(t, 1, func(o *Options) { o.NodeID = 1 })
	if _, code := own.register(1, 2, -1); code != 0 {
		t.Errorf("the controller's own node: %d", code)
	}
}

// K7, KAFKA-16952: the same incarnation registers again: epoch, fencing and ISRs stay.
func TestSameIncarnationKeepsItsPlace(t *testing.T) {
	s := newSim(t, 2)
	s.create("t", []int32{1, 2})
	before := s.c.img.Broker(1)
	epoch, code := s.register(1, 1, -1)
	if after := s.c.img.Broker(1); code != 0 || epoch != before.Epoch || after.Fenced || after.RegistrationOffset <= before.RegistrationOffset {
		t.Errorf("epoch %d code %d: %+v", epoch, code, after)
	}
	s.want("t", 0, 1, []int32{1, 2}, nil)
	if p := s.part("t", 0); p.LeaderEpoch != 0 || p.PartitionEpoch != 0 {
		t.Errorf("%+v", p)
	}
	s.beat(1)
}

// metadata-records.md §6, the table of heartbeat states.
func TestHeartbeatStates(t *testing.T) {
	const leads = true
	for _, c := range []struct {
		why                     string
		state                   brokerState
		leads                   bool
		wantFence, wantShutdown bool
		behind                  bool
		fenced, shutdown        bool
		after                   brokerState
	}{
		{"fenced, wants down", stateFenced, !leads, false, true, false, true, true, stateFenced},
		{"fenced, ready", stateFenced, !leads, false, false, false, false, false, stateUnfenced},
		{"fenced, behind", stateFenced, !leads, false, false, true, true, false, stateFenced},
		{"fenced, wants fence", stateFenced, !leads, true, false, false, true, false, stateFenced},
		{"unfenced", stateUnfenced, leads, false, false, false, false, false, stateUnfenced},
		{"unfenced, wants both", stateUnfenced, leads, true, true, false, true, true, stateFenced},
		{"unfenced, wants fence", stateUnfenced, leads, true, false, false, true, false, stateFenced},
		{"unfenced, leads", stateUnfenced, leads, false, true, false, false, false, stateControlledShutdown},
		{"unfenced, leads nothing", stateUnfenced, !leads, false, true, false, true, true, stateFenced},
	} {
		s := newSim(t, 2)
		if c.leads {
			s.create("t", []int32{1, 2})
		}
		if c.state == stateFenced {
			s.fence(1)
		}
		hb := s.heartbeat(1)
		hb.WantFence, hb.WantShutdown = c.wantFence, c.wantShutdown
		if c.behind {
			hb.CurrentMetadataOffset = s.c.img.Broker(1).RegistrationOffset - 1
		}
		r := s.do(hb).(*kmsg.BrokerHeartbeatResponse)
		if r.IsFenced != c.fenced || r.ShouldShutdown != c.shutdown || r.IsCaughtUp == c.behind || stateOf(s.c.img.Broker(1)) != c.after {
			t.Errorf("%s: %+v, now in state %d", c.why, r, stateOf(s.c.img.Broker(1)))
		}
		s.replayed()
	}
}

// A broker in controlled shutdown may stop when it leads nothing and all active brokers
// know; it is in no ISR meanwhile (R13).
func TestControlledShutdown(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2, 3})
	down := func() *kmsg.BrokerHeartbeatResponse {
		hb := s.heartbeat(1)
		hb.WantShutdown = true
		return s.do(hb).(*kmsg.BrokerHeartbeatResponse)
	}
	if r := down(); r.ShouldShutdown || r.IsFenced {
		t.Fatalf("%+v", r)
	}
	s.want("t", 0, 2, []int32{2, 3}, nil)
	if r := down(); r.ShouldShutdown {
		t.Fatal("brokers 2 and 3 have not seen it")
	}
	if got := s.alterISR("t", 0, 2, 3, 1); got.ErrorCode != kerr.IneligibleReplica.Code {
		t.Errorf("R13: a broker that shuts down came back into the ISR: %+v", got)
	}
	s.beat(2)
	if r := down(); r.ShouldShutdown {
		t.Fatal("broker 3 has not seen it")
	}
	s.beat(3)
	if r := down(); !r.ShouldShutdown || !s.c.img.Broker(1).Fenced {
		t.Fatalf("%+v", r)
	}
	// It comes back at once, though it was heard a moment ago.
	if _, code := s.register(1, 2, s.c.img.Broker(1).Epoch); code != 0 {
		t.Errorf("code %d", code)
	}
	s.beat(1)
	if s.c.img.Broker(1).ShuttingDown {
		t.Error("still shutting down")
	}
	s.replayed()
}

func TestStaleHeartbeat(t *testing.T) {
	s := newSim(t, 1)
	hb := s.heartbeat(1)
	hb.BrokerEpoch--
	if r := s.do(hb).(*kmsg.BrokerHeartbeatResponse); r.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("%+v", r)
	}
	hb.BrokerID = 7
	if r := s.do(hb).(*kmsg.BrokerHeartbeatResponse); r.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("%+v", r)
	}
}

// K6, KAFKA-13173: two sessions end together. The second is fenced on what the first left.
func TestTwoSessionsEndTogether(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2, 3})
	s.now = s.now.Add(8 * time.Second)
	s.beat(3)
	s.now = s.now.Add(time.Second)
	gone := s.c.expired(s.now)
	if len(gone) != 2 {
		t.Fatalf("expired %v", gone)
	}
	for _, b := range gone {
		s.apply(result{records: s.c.fence(s.c.img.Broker(b.ID))})
		delete(s.c.sessions, b.ID)
	}
	s.want("t", 0, 3, []int32{3}, nil)
	if got := s.c.expired(s.now); len(got) != 0 {
		t.Errorf("again: %v", got)
	}
	if next := s.c.nextExpiry(); !next.Equal(s.now.Add(8 * time.Second)) {
		t.Errorf("next at %v", next)
	}
	s.replayed()
}

// Without ELR the last member stays in the ISR of a leaderless partition; with ELR the ISR
// may be empty, and who was complete is eligible (metadata-records.md §8).
func TestFencingAllReplicas(t *testing.T) {
	s := newSim(t, 3, noELR)
	s.create("t", []int32{1, 2})
	s.fence(2)
	s.fence(1)
	s.want("t", 0, -1, []int32{1}, nil)
	s.beat(2)
	s.want("t", 0, -1, []int32{1}, nil)
	s.beat(1)
	s.want("t", 0, 1, []int32{1}, nil)
	s.replayed()

	e := newSim(t, 3)
	e.create("t", []int32{1, 2})
	e.setConfig(image.TopicConfig, "t", minISRKey, "2")
	e.fence(2)
	e.want("t", 0, 1, []int32{1}, []int32{2})
	e.fence(1)
	e.want("t", 0, -1, nil, []int32{1, 2})
	e.beat(2)
	// A clean election: 2 was in the ISR when it shrank below the minimum, so it has everything.
	e.want("t", 0, 2, []int32{2}, []int32{1})
	if e.part("t", 0).Recovering {
		t.Error("a clean election recovers nothing")
	}
	e.beat(1)
	if r := e.alterISR("t", 0, 2, 1); r.ErrorCode != 0 {
		t.Errorf("%+v", r)
	}
	e.want("t", 0, 2, []int32{1, 2}, nil)
	e.replayed()
}

// R15, R16: a replica that stopped uncleanly leaves ISR and ELR; the last known leader is
// elected only when it is active, and then recovers.
func TestUncleanRestart(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2})
	s.setConfig(image.TopicConfig, "t", minISRKey, "2")
	s.fence(2)
	s.want("t", 0, 1, []int32{1}, []int32{2})
	s.fence(1)
	s.want("t", 0, -1, nil, []int32{1, 2})
	// 2 comes back with another incarnation and without its clean epoch.
	s.register(2, 2, -1)
	s.want("t", 0, -1, nil, []int32{1})
	s.beat(2)
	s.want("t", 0, -1, nil, []int32{1})
	s.register(1, 2, -1)
	s.want("t", 0, -1, nil, nil)
	if p := s.part("t", 0); !slices.Equal(p.LastKnownELR, []int32{1}) {
		t.Fatalf("last known leader: %+v", p)
	}
	epoch := s.part("t", 0).LeaderEpoch
	s.beat(1)
	s.want("t", 0, 1, []int32{1}, nil)
	if p := s.part("t", 0); !p.Recovering || p.LeaderEpoch != epoch+1 {
		t.Errorf("%+v", p)
	}
	s.replayed()
}

// R14, KIP-903: the leader of two replicas crashes and is back within its session (here in
// the controller's process): it leaves the ISR, and only its new epoch may enter again.
func TestCrashWithinSession(t *testing.T) {
	s := newSim(t, 2, func(o *Options) { o.NodeID = 1 })
	s.create("t", []int32{1, 2})
	old := s.c.img.Broker(1).Epoch
	if _, code := s.register(1, 2, -1); code != 0 {
		t.Fatal(code)
	}
	s.want("t", 0, 2, []int32{2}, nil)
	if s.part("t", 0).LeaderEpoch != 1 {
		t.Error("R16, KAFKA-18106: no new leader epoch")
	}
	s.beat(1)
	got := s.alterISRWith("t", 0, []int32{2, 1}, func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) {
		p.NewEpochISR[1].BrokerEpoch = old
	})
	if got.ErrorCode != kerr.IneligibleReplica.Code {
		t.Errorf("old epoch: %+v", got)
	}
	if got := s.alterISR("t", 0, 2, 1); got.ErrorCode != 0 {
		t.Errorf("new epoch: %+v", got)
	}
}

// A lone broker that crashed leads all its partitions again.
func TestLoneBrokerCrash(t *testing.T) {
	s := newSim(t, 1, func(o *Options) { o.NodeID = 1 })
	s.create("t", []int32{1}, []int32{1})
	s.register(1, 2, -1)
	s.want("t", 0, -1, nil, nil)
	s.beat(1)
	s.want("t", 0, 1, []int32{1}, nil)
	if got := s.alterISR("t", 0, 1); got.ErrorCode != 0 || got.LeaderRecoveryState != 0 || s.part("t", 0).Recovering {
		t.Errorf("recovered: %+v", got)
	}
	s.replayed()
}

func TestUncleanElection(t *testing.T) {
	s := newSim(t, 3, noELR)
	s.create("t", []int32{1, 2})
	s.fence(2)
	s.fence(1)
	s.beat(2)
	s.want("t", 0, -1, []int32{1}, nil)
	if r := s.do(electRequest(0, "t", 0)).(*kmsg.ElectLeadersResponse); r.Topics[0].Partitions[0].ErrorCode != kerr.PreferredLeaderNotAvailable.Code {
		t.Errorf("%+v", r)
	}
	r := s.do(electRequest(1, "t", 0)).(*kmsg.ElectLeadersResponse)
	if r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("%+v", r)
	}
	s.want("t", 0, 2, []int32{2}, nil)
	if !s.part("t", 0).Recovering {
		t.Error("not recovering")
	}
	// A config allows it for good.
	s.create("u", []int32{1, 3})
	s.beat(1)
	s.fence(3)
	s.fence(1)
	s.setConfig(image.TopicConfig, "u", uncleanKey, "true")
	s.beat(3)
	if p := s.part("u", 0); p.Leader != 3 {
		t.Errorf("%+v", p)
	}
	s.replayed()
}

func electRequest(typ int8, topic string, partitions ...int32) *kmsg.ElectLeadersRequest {
	rq := &kmsg.ElectLeadersRequest{Version: 2, ElectionType: typ}
	if topic != "" {
		rq.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: topic, Partitions: partitions}}
	}
	return rq
}

// semantics.md §13.4.
func TestElectLeaders(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2}, []int32{2, 3})
	s.fence(1)
	s.beat(1)
	if got := s.alterISR("t", 0, 2, 1); got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	code := func(rq *kmsg.ElectLeadersRequest) int16 {
		r := s.do(rq).(*kmsg.ElectLeadersResponse)
		if r.ErrorCode != 0 {
			return r.ErrorCode
		}
		return r.Topics[0].Partitions[0].ErrorCode
	}
	for _, c := range []struct {
		why string
		rq  *kmsg.ElectLeadersRequest
		err *kerr.Error
	}{
		{"type", electRequest(2, "t", 0), kerr.InvalidRequest},
		{"topic", electRequest(0, "x", 0), kerr.UnknownTopicOrPartition},
		{"partition", electRequest(0, "t", 5), kerr.UnknownTopicOrPartition},
		{"preferred leads", electRequest(0, "t", 1), kerr.ElectionNotNeeded},
		{"has a leader", electRequest(1, "t", 0), kerr.ElectionNotNeeded},
	} {
		if got := code(c.rq); got != c.err.Code {
			t.Errorf("%s: %d", c.why, got)
		}
	}
	r := s.do(electRequest(0, "")).(*kmsg.ElectLeadersResponse)
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Errorf("all: %+v", r)
	}
	s.want("t", 0, 1, []int32{1, 2}, nil)
}

func TestRebalanceIsBounded(t *testing.T) {
	s := newSim(t, 2)
	var lists [][]int32
	for range 30 {
		lists = append(lists, []int32{1, 2})
	}
	s.create("t", lists...)
	s.fence(1)
	s.beat(1)
	for id := range lists {
		s.alterISR("t", int32(id), 2, 1)
	}
	if n := len(s.c.rebalanceLeaders(10)); n != 10 {
		t.Errorf("%d elections", n)
	}
	records := s.c.rebalanceLeaders(1000)
	s.apply(result{records: records})
	if len(records) != 30 || len(s.c.rebalanceLeaders(1000)) != 0 {
		t.Errorf("%d elections", len(records))
	}
}

// metadata-records.md §6, §9: an offline directory takes its replicas out of ISRs.
func TestDirectories(t *testing.T) {
	s := newSim(t, 2)
	rq := registration(3, 1, -1)
	rq.LogDirs = [][16]byte{{0xd, 3}, {0xe, 3}}
	s.do(rq)
	s.beat(3)
	topic := s.create("t", []int32{3, 1}, []int32{3, 1})
	if s.part("t", 0).Directories[0] != ids.DirUnassigned {
		t.Errorf("%+v", s.part("t", 0))
	}
	assign := func(dir ids.UUID, partition int32) int16 {
		return s.do(&kmsg.AssignReplicasToDirsRequest{BrokerID: 3, BrokerEpoch: s.c.img.Broker(3).Epoch, Directories: []kmsg.AssignReplicasToDirsRequestDirectory{{
			ID: dir, Topics: []kmsg.AssignReplicasToDirsRequestDirectoryTopic{{TopicID: topic.ID,
				Partitions: []kmsg.AssignReplicasToDirsRequestDirectoryTopicPartition{{Partition: partition}}}},
		}}}).(*kmsg.AssignReplicasToDirsResponse).Directories[0].Topics[0].Partitions[0].ErrorCode
	}
	if a, b := assign(ids.UUID{0xd, 3}, 0), assign(ids.UUID{0xe, 3}, 1); a != 0 || b != 0 {
		t.Fatalf("%d %d", a, b)
	}
	if p := s.part("t", 1); p.Directories[0] != (ids.UUID{0xe, 3}) || p.LeaderEpoch != 0 {
		t.Errorf("%+v", p)
	}
	hb := s.heartbeat(3)
	hb.OfflineLogDirs = [][16]byte{{0xe, 3}}
	hb.CordonedLogDirs = [][16]byte{{0xd, 3}}
	s.do(hb)
	s.want("t", 0, 3, []int32{3, 1}, nil)
	s.want("t", 1, 1, []int32{1}, nil)
	b := s.c.img.Broker(3)
	if len(b.LogDirs) != 1 || b.Placeable() {
		t.Errorf("%+v", b)
	}
	if _, records := s.decide(hb); len(records) != 0 {
		t.Errorf("the same news again gave %d records", len(records))
	}
	if r := s.do(createRequest("u", 1, 3)).(*kmsg.CreateTopicsResponse).Topics[0]; r.ErrorCode != kerr.InvalidReplicationFactor.Code {
		t.Errorf("three replicas with one broker cordoned: %+v", r)
	}
	if assign(ids.UUID{0xee}, 0) != 0 {
		t.Error("assignment to an offline directory")
	}
	s.want("t", 0, 1, []int32{1}, nil)
	s.replayed()
}

func TestUnregister(t *testing.T) {
	s := newSim(t, 2)
	s.create("t", []int32{1, 2})
	if r := s.do(&kmsg.UnregisterBrokerRequest{BrokerID: 9}).(*kmsg.UnregisterBrokerResponse); r.ErrorCode != kerr.BrokerIDNotRegistered.Code {
		t.Errorf("%+v", r)
	}
	if r := s.do(&kmsg.UnregisterBrokerRequest{BrokerID: 1}).(*kmsg.UnregisterBrokerResponse); r.ErrorCode != 0 || s.c.img.Broker(1) != nil {
		t.Errorf("%+v", r)
	}
	s.want("t", 0, 2, []int32{2}, nil)
	reg := &kmsg.ControllerRegistrationRequest{ControllerID: 5, Listeners: []kmsg.ControllerRegistrationRequestListener{{Name: "C", Host: "h", Port: 1}}}
	for _, f := range feature.Supported() {
		reg.Features = append(reg.Features, kmsg.ControllerRegistrationRequestFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	if r := s.do(reg).(*kmsg.ControllerRegistrationResponse); r.ErrorCode != 0 || s.c.img.Controller(5) == nil {
		t.Errorf("%+v", r)
	}
	if r := s.do(&kmsg.UnregisterControllerRequest{ControllerID: 5}).(*kmsg.UnregisterControllerResponse); r.ErrorCode != 0 || s.c.img.Controller(5) != nil {
		t.Errorf("%+v", r)
	}
	if r := s.do(&kmsg.UnregisterControllerRequest{ControllerID: 5}).(*kmsg.UnregisterControllerResponse); r.ErrorCode != kerr.ControllerIDNotRegistered.Code {
		t.Errorf("%+v", r)
	}
	s.replayed()
}

// metadata-records.md §10.
func TestProducerIDs(t *testing.T) {
	s := newSim(t, 1)
	rq := &kmsg.AllocateProducerIDsRequest{BrokerID: 1, BrokerEpoch: s.c.img.Broker(1).Epoch}
	for _, first := range []int64{0, 1000} {
		if r := s.do(rq).(*kmsg.AllocateProducerIDsResponse); r.ProducerIDStart != first || r.ProducerIDLen != 1000 {
			t.Errorf("%+v", r)
		}
	}
	rq.BrokerEpoch++
	if r := s.do(rq).(*kmsg.AllocateProducerIDsResponse); r.ErrorCode != kerr.StaleBrokerEpoch.Code {
		t.Errorf("%+v", r)
	}
}

// K6: a controller that did not run for a while must not fence brokers whose heartbeats it
// has not read yet.
func TestPausedControllerExcusesSessions(t *testing.T) {
	s := newSim(t, 2)
	s.now = s.now.Add(time.Minute)
	s.c.excuse(time.Minute - s.c.opt.SessionTimeout)
	if got := s.c.expired(s.now.Add(-time.Millisecond)); len(got) != 0 {
		t.Errorf("fenced %v", got)
	}
	if got := s.c.expired(s.now); len(got) != 2 {
		t.Errorf("the silence goes on: %v", got)
	}
}
