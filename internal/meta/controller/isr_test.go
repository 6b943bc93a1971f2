package controller

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
)

// metadata-records.md §7, row by row.
func TestAlterPartitionRefusals(t *testing.T) {
	type rq = *kmsg.AlterPartitionRequest
	type rp = *kmsg.AlterPartitionRequestTopicPartition
	for name, c := range map[string]struct {
		change func(rq, rp)
		code   *kerr.Error
	}{
		"broker epoch":        {func(r rq, _ rp) { r.BrokerEpoch-- }, kerr.StaleBrokerEpoch},
		"partition":           {func(_ rq, p rp) { p.Partition = 4 }, kerr.UnknownTopicOrPartition},
		"newer leader epoch":  {func(_ rq, p rp) { p.LeaderEpoch++ }, kerr.NotController},
		"newer partition":     {func(_ rq, p rp) { p.PartitionEpoch++ }, kerr.NotController},
		"older leader epoch":  {func(_ rq, p rp) { p.LeaderEpoch-- }, kerr.FencedLeaderEpoch},
		"older partition":     {func(_ rq, p rp) { p.PartitionEpoch-- }, kerr.InvalidUpdateVersion},
		"empty":               {func(_ rq, p rp) { p.NewEpochISR = nil }, kerr.InvalidRequest},
		"duplicate":           {func(_ rq, p rp) { p.NewEpochISR[1] = p.NewEpochISR[0] }, kerr.InvalidRequest},
		"stranger":            {func(_ rq, p rp) { p.NewEpochISR[1].BrokerID = 4 }, kerr.InvalidRequest},
		"without leader":      {func(_ rq, p rp) { p.NewEpochISR = p.NewEpochISR[1:] }, kerr.InvalidRequest},
		"recovering, several": {func(_ rq, p rp) { p.LeaderRecoveryState = 1 }, kerr.InvalidRequest},
		"to recovering":       {func(_ rq, p rp) { p.LeaderRecoveryState, p.NewEpochISR = 1, p.NewEpochISR[:1] }, kerr.InvalidRequest},
		"fenced member":       {func(_ rq, p rp) { p.NewEpochISR[1].BrokerID, p.NewEpochISR[1].BrokerEpoch = 3, -1 }, kerr.IneligibleReplica},
		"member's old epoch":  {func(_ rq, p rp) { p.NewEpochISR[1].BrokerEpoch-- }, kerr.IneligibleReplica},
	} {
		s := newSim(t, 4)
		s.create("t", []int32{1, 2, 3})
		s.fence(3)
		before := s.c.img.Offset()
		if got := s.alterISRWith("t", 0, []int32{1, 2}, c.change); got.ErrorCode != c.code.Code || s.c.img.Offset() != before {
			t.Errorf("%s: %+v", name, got)
		}
	}
	s := newSim(t, 2)
	s.create("t", []int32{1, 2})
	for name, c := range map[string]struct {
		broker int32
		topic  ids.UUID
		code   *kerr.Error
	}{"topic": {1, ids.UUID{9}, kerr.UnknownTopicID}, "not the leader": {2, s.c.img.Topic("t").ID, kerr.InvalidRequest}} {
		r := s.do(&kmsg.AlterPartitionRequest{Version: 3, BrokerID: c.broker, BrokerEpoch: s.c.img.Broker(c.broker).Epoch,
			Topics: []kmsg.AlterPartitionRequestTopic{{TopicID: c.topic, Partitions: []kmsg.AlterPartitionRequestTopicPartition{{}}}}}).(*kmsg.AlterPartitionResponse)
		if got := r.Topics[0].Partitions[0].ErrorCode; got != c.code.Code {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// R12, KAFKA-14144: the answer to an applied change is lost. The retry is told to look at
// the metadata, and from there the leader goes on.
func TestLostAnswerConverges(t *testing.T) {
	s := newSim(t, 3)
	s.create("t", []int32{1, 2, 3})
	stale := s.part("t", 0).PartitionEpoch
	first := s.alterISR("t", 0, 1, 2)
	if first.ErrorCode != 0 || first.PartitionEpoch != stale+1 || first.LeaderEpoch != 0 || !slices.Equal(first.ISR, []int32{1, 2}) {
		t.Fatalf("%+v", first)
	}
	again := s.alterISRWith("t", 0, []int32{1, 2}, func(_ *kmsg.AlterPartitionRequest, p *kmsg.AlterPartitionRequestTopicPartition) {
		p.PartitionEpoch = stale
	})
	if again.ErrorCode != kerr.InvalidUpdateVersion.Code {
		t.Errorf("%+v", again)
	}
	before := s.c.img.Offset()
	if same := s.alterISR("t", 0, 1, 2); same.ErrorCode != 0 || s.c.img.Offset() != before {
		t.Errorf("the same ISR from the right epoch needs no record: %+v", same)
	}
	if next := s.alterISR("t", 0, 1, 2, 3); next.ErrorCode != 0 {
		t.Errorf("%+v", next)
	}
}

// A cluster under random fencing, restarts, ISR changes, reassignments and elections keeps
// its invariants (sim.check), has one leader an epoch, and replays to the same image.
func TestRandomCluster(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var opts []func(*Options)
		if seed%2 == 0 {
			opts = append(opts, noELR)
		}
		s := newSim(t, 5, opts...)
		s.create("t", []int32{1, 2, 3}, []int32{2, 3, 4}, []int32{3, 4, 5}, []int32{5, 1, 2})
		s.create("u", []int32{4, 1}, []int32{5, 2})
		if s.setConfig(image.TopicConfig, "t", minISRKey, "2") != 0 {
			t.Fatal("config")
		}
		if seed%3 == 0 {
			s.setConfig(image.TopicConfig, "u", uncleanKey, "true")
		}
		incarnation := byte(1)
		for range 400 {
			s.randomStep(rng, &incarnation)
		}
		s.replayed()
		// With everybody back, cleanly, whatever has an eligible replica is led.
		for id := range int32(5) {
			if b := s.c.img.Broker(id + 1); b.ShuttingDown {
				incarnation++
				if _, code := s.register(b.ID, incarnation, b.Epoch); code != 0 {
					t.Fatal(code)
				}
			}
			s.beat(id + 1)
		}
		for topic := range s.c.img.Topics() {
			for id, p := range topic.Partitions {
				if p.Leader < 0 && (len(p.ELR) > 0 || len(p.ISR) > 0 || len(p.LastKnownELR) > 0) {
					t.Fatalf("seed %d: %s-%d has no leader: %+v", seed, topic.Name, id, p)
				}
			}
		}
	}
}

func (s *sim) randomStep(rng *rand.Rand, incarnation *byte) {
	id := rng.Int32N(5) + 1
	b := s.c.img.Broker(id)
	topic, partition := "t", rng.Int32N(4)
	if rng.IntN(3) == 0 {
		topic, partition = "u", rng.Int32N(2)
	}
	p := s.part(topic, partition)
	switch rng.IntN(9) {
	case 0:
		if !b.Fenced {
			s.fence(id)
		}
	case 1, 2:
		s.do(s.heartbeat(id))
	case 3:
		delete(s.c.sessions, id)
		*incarnation++
		previous := int64(-1)
		if rng.IntN(2) == 0 {
			previous = b.Epoch
		}
		s.register(id, *incarnation, previous)
	case 4:
		hb := s.heartbeat(id)
		hb.WantShutdown = true
		s.do(hb)
	case 5, 6:
		if p.Leader >= 0 {
			isr := slices.DeleteFunc(slices.Clone(p.Replicas), func(r int32) bool {
				return r != p.Leader && (!s.c.active(r) || rng.IntN(3) == 0)
			})
			s.alterISR(topic, partition, isr...)
		}
	case 7:
		target := []int32{1, 2, 3, 4, 5}
		rng.Shuffle(5, func(i, j int) { target[i], target[j] = target[j], target[i] })
		replicas := target[:1+rng.IntN(3)]
		if rng.IntN(4) == 0 {
			replicas = nil
		}
		s.do(reassignRequest(topic, partition, replicas))
	case 8:
		s.do(electRequest(int8(rng.IntN(2)), topic, partition))
	}
}
