package group

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func BenchmarkOffsetCommit(b *testing.B) {
	s, _ := newService(1)
	defer s.Close()
	list := kmsg.NewPtrListGroupsRequest()
	for s.ListGroups(context.Background(), list).ErrorCode != 0 { // it loads
		runtime.Gosched()
	}
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		rq := kmsg.NewPtrOffsetCommitRequest()
		rq.Version, rq.Group, rq.Generation = 9, fmt.Sprint("g", n.Add(1)), -1
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		rq.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "topic", Partitions: []kmsg.OffsetCommitRequestTopicPartition{p}}}
		for pb.Next() {
			if r := s.OffsetCommit(context.Background(), rq); r.Topics[0].Partitions[0].ErrorCode != 0 {
				b.Fatal(r.Topics[0].Partitions[0].ErrorCode)
			}
		}
	})
}

func BenchmarkHeartbeat(b *testing.B) {
	s := NewShard(DefaultConfig)
	now := time.Now()
	s.Loaded(now)
	g := s.group("g")
	m := &member{id: "m", session: 10 * time.Second}
	g.add(m)
	g.state = Stable
	rq := kmsg.NewPtrHeartbeatRequest()
	rq.Group, rq.MemberID = "g", "m"
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		if e := s.Heartbeat(rq, now); e != nil {
			b.Fatal(e)
		}
		if next := s.Next(); !next.IsZero() && !now.Before(next) {
			s.Tick(now)
		}
	}
}
