package controller

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// sim drives the deciding core as the log would: what it decides is encoded, decoded and
// replayed, and the cluster's invariants are checked after every step.
type sim struct {
	t      *testing.T
	c      *core
	now    time.Time
	log    []metarec.Record
	leader map[partitionKey]map[int32]int32 // leader by epoch: an epoch has one leader
}

const clusterID = "AAAAAAAAAAAAAAAAAAAAAw"

func newSim(t *testing.T, brokers int, change ...func(*Options)) *sim {
	t.Helper()
	rng := rand.New(rand.NewPCG(7, 7))
	opt := Options{NodeID: 100, ClusterID: clusterID, Random: rng.Uint64}
	for _, f := range change {
		f(&opt)
	}
	s := &sim{t: t, now: time.UnixMilli(1_000_000), leader: map[partitionKey]map[int32]int32{}}
	s.c = newCore(opt.withDefaults(), image.Empty(), 1, s.now)
	s.apply(result{records: s.c.bootstrap()})
	for id := range int32(brokers) {
		s.register(id+1, 1, -1)
		s.beat(id + 1)
	}
	return s
}

func noELR(o *Options) {
	o.Bootstrap = slices.DeleteFunc(BootstrapRecords(feature.LatestMetadata), func(r metarec.Record) bool {
		f, ok := r.(*metarec.FeatureLevel)
		return ok && f.Name == feature.ELR
	})
}

func (s *sim) apply(res result) {
	s.t.Helper()
	for _, b := range batches(res, s.c.img.MetadataVersion()) {
		decoded := make([]metarec.Record, len(b.encoded))
		for i, e := range b.encoded {
			r, _, err := metarec.Decode(e)
			if err != nil {
				s.t.Fatal(err)
			}
			decoded[i] = r
		}
		if err := s.c.apply(decoded, s.c.next+int64(len(decoded))-1, 1); err != nil {
			s.t.Fatal(err)
		}
		s.log = append(s.log, decoded...)
	}
	if res.appended != nil {
		res.appended(s.c.next - 1)
	}
	s.check()
}

// do decides, replays and returns the response.
func (s *sim) do(body kmsg.Request) kmsg.Response {
	s.t.Helper()
	r, _ := s.decide(body)
	return r
}

func (s *sim) decide(body kmsg.Request) (kmsg.Response, []metarec.Record) {
	s.t.Helper()
	res := s.c.decide(&Request{Body: body}, s.now)
	if res.err != nil {
		s.t.Fatal(res.err)
	}
	s.apply(res)
	return res.response, res.records
}

func (s *sim) check() {
	s.t.Helper()
	for t := range s.c.img.Topics() {
		for id, p := range t.Partitions {
			s.checkPartition(partitionKey{t.ID, int32(id)}, p)
		}
	}
}

func (s *sim) checkPartition(key partitionKey, p *image.Partition) {
	s.t.Helper()
	bad := func(what string) { s.t.Fatalf("partition %d: %s: %+v", key.partition, what, p) }
	switch {
	case len(p.Directories) != len(p.Replicas):
		bad("directories do not match replicas")
	case !containsAll(p.Replicas, p.ISR):
		bad("ISR has a stranger")
	case !containsAll(p.Replicas, p.ELR):
		bad("ELR has a stranger")
	case p.Leader >= 0 && !slices.Contains(p.ISR, p.Leader):
		bad("leader is not in the ISR")
	case p.Leader >= 0 && !s.c.acceptable(p, p.Leader):
		bad("leader is not active")
	case len(p.ISR) == 0 && !s.c.img.ELREnabled():
		bad("empty ISR without ELR")
	case p.Leader >= 0 && len(p.LastKnownELR) > 0:
		bad("last known leader while there is one")
	}
	for _, id := range p.ISR {
		if slices.Contains(p.ELR, id) {
			bad("in ISR and ELR")
		}
		if p.Leader >= 0 && !s.c.active(id) {
			bad("ISR has a fenced broker")
		}
	}
	epochs := s.leader[key]
	if epochs == nil {
		epochs = map[int32]int32{}
		s.leader[key] = epochs
	}
	if was, ok := epochs[p.LeaderEpoch]; ok && was != p.Leader {
		bad(fmt.Sprintf("epoch %d had leader %d", p.LeaderEpoch, was))
	}
	epochs[p.LeaderEpoch] = p.Leader
}

// replayed checks that the log and a snapshot both give the image that decisions saw.
func (s *sim) replayed() {
	s.t.Helper()
	fresh, _, err := image.Empty().Apply(s.log, s.c.img.Offset(), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	loaded, err := image.Load(s.c.img.Snapshot(), s.c.img.Offset(), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	if want := dump(s.c.img); dump(fresh) != want || dump(loaded) != want {
		s.t.Fatal("log, snapshot and image differ")
	}
}

func dump(i *image.Image) string {
	var b strings.Builder
	for r := range i.Snapshot() {
		fmt.Fprintf(&b, "%x\n", metarec.Encode(r, metarec.VersionFor(r, i.MetadataVersion())))
	}
	return b.String()
}

func features() []kmsg.BrokerRegistrationRequestFeature {
	var out []kmsg.BrokerRegistrationRequestFeature
	for _, f := range feature.Supported() {
		out = append(out, kmsg.BrokerRegistrationRequestFeature{Name: f.Name, MinSupportedVersion: f.Min, MaxSupportedVersion: f.Max})
	}
	return out
}

func registration(id int32, incarnation byte, previous int64) *kmsg.BrokerRegistrationRequest {
	return &kmsg.BrokerRegistrationRequest{
		Version: 4, BrokerID: id, ClusterID: clusterID, IncarnationID: ids.UUID{byte(id), incarnation}, PreviousBrokerEpoch: previous,
		Listeners: []kmsg.BrokerRegistrationRequestListener{{Name: "PLAINTEXT", Host: "h", Port: 9092}},
		Features:  features(), LogDirs: [][16]byte{{0xd, byte(id)}},
	}
}

func (s *sim) register(id int32, incarnation byte, previous int64) (epoch int64, code int16) {
	s.t.Helper()
	r := s.do(registration(id, incarnation, previous)).(*kmsg.BrokerRegistrationResponse)
	return r.BrokerEpoch, r.ErrorCode
}

func (s *sim) heartbeat(id int32) *kmsg.BrokerHeartbeatRequest {
	return &kmsg.BrokerHeartbeatRequest{Version: 1, BrokerID: id, BrokerEpoch: s.c.img.Broker(id).Epoch, CurrentMetadataOffset: s.c.img.Offset()}
}

func (s *sim) beat(ids ...int32) {
	s.t.Helper()
	for _, id := range ids {
		if r := s.do(s.heartbeat(id)).(*kmsg.BrokerHeartbeatResponse); r.ErrorCode != 0 || r.IsFenced {
			s.t.Fatalf("heartbeat of %d: %+v", id, r)
		}
	}
}

// fence ends a broker's session.
func (s *sim) fence(id int32) {
	s.t.Helper()
	s.apply(result{records: s.c.fence(s.c.img.Broker(id))})
	delete(s.c.sessions, id)
}

func createRequest(name string, partitions int32, factor int16) *kmsg.CreateTopicsRequest {
	return &kmsg.CreateTopicsRequest{Version: 7, Topics: []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: partitions, ReplicationFactor: factor}}}
}

// create makes a topic with one replica list a partition.
func (s *sim) create(name string, replicas ...[]int32) *image.Topic {
	s.t.Helper()
	rq := createRequest(name, -1, -1)
	for i, r := range replicas {
		rq.Topics[0].ReplicaAssignment = append(rq.Topics[0].ReplicaAssignment, kmsg.CreateTopicsRequestTopicReplicaAssignment{Partition: int32(i), Replicas: r})
	}
	r := s.do(rq).(*kmsg.CreateTopicsResponse)
	if r.Topics[0].ErrorCode != 0 {
		s.t.Fatalf("%+v %s", r.Topics[0], *r.Topics[0].ErrorMessage)
	}
	return s.c.img.Topic(name)
}

func (s *sim) setConfig(typ int8, resource, name, value string) int16 {
	s.t.Helper()
	return s.do(alter(typ, resource, 0, name, &value)).(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode
}

func alter(typ int8, resource string, op int8, name string, value *string) *kmsg.IncrementalAlterConfigsRequest {
	return &kmsg.IncrementalAlterConfigsRequest{Version: 1, Resources: []kmsg.IncrementalAlterConfigsRequestResource{{
		ResourceType: kmsg.ConfigResourceType(typ), ResourceName: resource,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Op: kmsg.IncrementalAlterConfigOp(op), Value: value}},
	}}}
}

func (s *sim) part(name string, id int32) *image.Partition {
	s.t.Helper()
	p := s.c.img.Topic(name).Partition(id)
	if p == nil {
		s.t.Fatalf("no %s-%d", name, id)
	}
	return p
}

func (s *sim) want(name string, id int32, leader int32, isr, elr []int32) {
	s.t.Helper()
	p := s.part(name, id)
	if p.Leader != leader || !sameSet(p.ISR, isr) || !sameSet(p.ELR, elr) {
		s.t.Fatalf("%s-%d: leader %d isr %v elr %v, want leader %d isr %v elr %v", name, id, p.Leader, p.ISR, p.ELR, leader, isr, elr)
	}
}

func sameSet(a, b []int32) bool {
	return reflect.DeepEqual(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

func (s *sim) alterISR(name string, id int32, isr ...int32) *kmsg.AlterPartitionResponseTopicPartition {
	s.t.Helper()
	return s.alterISRWith(name, id, isr, nil)
}

func (s *sim) alterISRWith(name string, id int32, isr []int32, change func(*kmsg.AlterPartitionRequest, *kmsg.AlterPartitionRequestTopicPartition)) *kmsg.AlterPartitionResponseTopicPartition {
	s.t.Helper()
	p, t := s.part(name, id), s.c.img.Topic(name)
	rp := kmsg.AlterPartitionRequestTopicPartition{Partition: id, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
	for _, b := range isr {
		m := kmsg.AlterPartitionRequestTopicPartitionNewEpochISR{BrokerID: b, BrokerEpoch: -1}
		if reg := s.c.img.Broker(b); reg != nil {
			m.BrokerEpoch = reg.Epoch
		}
		rp.NewEpochISR = append(rp.NewEpochISR, m)
	}
	rq := &kmsg.AlterPartitionRequest{Version: 3, BrokerID: p.Leader}
	if b := s.c.img.Broker(p.Leader); b != nil {
		rq.BrokerEpoch = b.Epoch
	}
	if change != nil {
		change(rq, &rp)
	}
	rq.Topics = []kmsg.AlterPartitionRequestTopic{{TopicID: t.ID, Partitions: []kmsg.AlterPartitionRequestTopicPartition{rp}}}
	r := s.do(rq).(*kmsg.AlterPartitionResponse)
	if r.ErrorCode != 0 {
		return &kmsg.AlterPartitionResponseTopicPartition{ErrorCode: r.ErrorCode}
	}
	return &r.Topics[0].Partitions[0]
}

func ptr[T any](v T) *T { return &v }
