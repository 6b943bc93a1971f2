package controller

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// memLog is a metadata log whose commits the test releases.
type memLog struct {
	mu      sync.Mutex
	records []metarec.Record
	offset  int64 // of the last record
	pending []func(error)
	manual  bool
	refuse  error
	skip    int64 // control records that the quorum puts before the next append
}

func (l *memLog) Append(epoch int32, records [][]byte, done func(error)) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return 0, l.refuse
	}
	l.offset += l.skip
	l.skip = 0
	for _, b := range records {
		r, _, err := metarec.Decode(b)
		if err != nil {
			return 0, err
		}
		l.records = append(l.records, r)
		l.offset++
	}
	if l.manual {
		l.pending = append(l.pending, done)
	} else {
		go done(nil)
	}
	return l.offset, nil
}

func (l *memLog) settle(err error) {
	l.mu.Lock()
	pending := l.pending
	l.pending = nil
	l.mu.Unlock()
	for _, done := range pending {
		done(err)
	}
}

func (l *memLog) image(t *testing.T) *image.Image {
	l.mu.Lock()
	defer l.mu.Unlock()
	img, _, err := image.Empty().Apply(l.records, l.offset, 1)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func newLoop(l *memLog) *Controller {
	return New(Options{NodeID: 100, ClusterID: clusterID, Log: l, Now: time.Now, Random: rand.New(rand.NewPCG(1, 1)).Uint64})
}

func call(t *testing.T, c *Controller, body kmsg.Request) kmsg.Response {
	t.Helper()
	r, err := c.Handle(t.Context(), Request{Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLoopServesAndFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		c := newLoop(l)
		defer c.Close()
		if _, err := c.Handle(t.Context(), Request{Body: createRequest("t", 1, 1)}); !errors.Is(err, kerr.NotController) {
			t.Fatalf("before leading: %v", err)
		}
		c.Lead(1, image.Empty(), 1)
		epochs := map[int32]int64{}
		for id := range int32(2) {
			epochs[id+1] = call(t, c, registration(id+1, 1, -1)).(*kmsg.BrokerRegistrationResponse).BrokerEpoch
		}
		beat := func(id int32) *kmsg.BrokerHeartbeatResponse {
			return call(t, c, &kmsg.BrokerHeartbeatRequest{Version: 1, BrokerID: id, BrokerEpoch: epochs[id], CurrentMetadataOffset: l.offset}).(*kmsg.BrokerHeartbeatResponse)
		}
		beat(1)
		beat(2)
		call(t, c, createRequest("t", 3, 2))
		for range 10 {
			time.Sleep(2 * time.Second)
			beat(1)
		}
		img := l.image(t)
		if !img.Broker(2).Fenced || img.Broker(1).Fenced {
			t.Fatalf("%+v %+v", img.Broker(1), img.Broker(2))
		}
		for _, p := range img.Topic("t").Partitions {
			if p.Leader != 1 {
				t.Errorf("%+v", p)
			}
		}
		if r := beat(2); r.IsFenced || r.ErrorCode != 0 {
			t.Errorf("it may come back: %+v", r)
		}
	})
}

// A response waits for the commit of its records, and one without records for those before it.
func TestResponsesWaitForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		c := newLoop(l)
		defer c.Close()
		c.Lead(1, image.Empty(), 1)
		epoch := call(t, c, registration(1, 1, -1)).(*kmsg.BrokerRegistrationResponse).BrokerEpoch
		call(t, c, &kmsg.BrokerHeartbeatRequest{BrokerID: 1, BrokerEpoch: epoch, CurrentMetadataOffset: 1 << 30})
		l.manual = true
		results := make(chan error, 2)
		for range 2 {
			go func() {
				r, err := c.Handle(context.Background(), Request{Body: createRequest("t", 1, 1)})
				if err == nil && r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode == 0 && l.image(t).Topic("t") == nil {
					err = errors.New("answered before the record")
				}
				results <- err
			}()
		}
		synctest.Wait()
		if len(results) != 0 {
			t.Fatal("answered before the commit")
		}
		l.settle(nil)
		synctest.Wait()
		if a, b := <-results, <-results; a != nil || b != nil {
			t.Fatal(a, b)
		}
		// Lost records: the caller must look for the new controller.
		go func() {
			_, err := c.Handle(context.Background(), Request{Body: createRequest("u", 1, 1)})
			results <- err
		}()
		synctest.Wait()
		l.settle(errors.New("epoch ended"))
		if err := <-results; !errors.Is(err, kerr.NotController) {
			t.Errorf("lost: %v", err)
		}
		// A deadline ends the wait, not the change.
		l.pending = nil
		_, err := c.Handle(t.Context(), Request{Body: createRequest("v", 1, 1), Deadline: time.Now().Add(time.Second)})
		if !errors.Is(err, kerr.RequestTimedOut) || l.image(t).Topic("v") == nil {
			t.Errorf("deadline: %v", err)
		}
	})
}

// After a lost epoch the next one starts from the committed image; an open metadata
// transaction of the one before is aborted.
func TestFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		c := newLoop(l)
		defer c.Close()
		c.Lead(1, image.Empty(), 1)
		call(t, c, registration(1, 1, -1))
		c.Resign(1)
		if _, err := c.Handle(t.Context(), Request{Body: registration(2, 1, -1)}); !errors.Is(err, kerr.NotController) {
			t.Errorf("resigned: %v", err)
		}
		l.records = append(l.records, &metarec.BeginTransaction{}, &metarec.Topic{Name: "half"})
		l.offset += 2
		c.Resign(7) // of an epoch that is not ours
		c.Lead(3, l.image(t), l.offset+1)
		if r := call(t, c, registration(2, 1, -1)).(*kmsg.BrokerRegistrationResponse); r.ErrorCode != 0 {
			t.Errorf("%+v", r)
		}
		img := l.image(t)
		if img.InTransaction() || img.Topic("half") != nil || img.Broker(2) == nil {
			t.Error("the open transaction was not aborted")
		}
		l.refuse = errors.New("not leader")
		if _, err := c.Handle(t.Context(), Request{Body: registration(3, 1, -1)}); !errors.Is(err, kerr.NotController) {
			t.Errorf("refused append: %v", err)
		}
		l.refuse = nil
		if _, err := c.Handle(t.Context(), Request{Body: registration(3, 1, -1)}); !errors.Is(err, kerr.NotController) {
			t.Errorf("after a refused append it leads no more: %v", err)
		}
	})
}

// A control record between two appends shifts offsets and nothing else.
func TestForeignRecordsBetweenAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		c := newLoop(l)
		defer c.Close()
		c.Lead(1, image.Empty(), 1)
		synctest.Wait()
		l.skip = 5
		epoch := call(t, c, registration(1, 1, -1)).(*kmsg.BrokerRegistrationResponse).BrokerEpoch
		hb := &kmsg.BrokerHeartbeatRequest{BrokerID: 1, BrokerEpoch: epoch, CurrentMetadataOffset: l.offset - 1}
		if r := call(t, c, hb).(*kmsg.BrokerHeartbeatResponse); r.IsCaughtUp {
			t.Error("caught up before the registration's offset")
		}
		hb.CurrentMetadataOffset++
		if r := call(t, c, hb).(*kmsg.BrokerHeartbeatResponse); !r.IsCaughtUp || r.IsFenced {
			t.Errorf("%+v", r)
		}
	})
}

// An idle lone broker costs its heartbeats and one timer, and no records.
func TestIdleIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &memLog{}
		c := newLoop(l)
		defer c.Close()
		c.Lead(1, image.Empty(), 1)
		epoch := call(t, c, registration(1, 1, -1)).(*kmsg.BrokerRegistrationResponse).BrokerEpoch
		hb := &kmsg.BrokerHeartbeatRequest{BrokerID: 1, BrokerEpoch: epoch, CurrentMetadataOffset: 1 << 30}
		call(t, c, hb)
		before := l.offset
		for range 1000 {
			time.Sleep(2 * time.Second)
			if r := call(t, c, hb).(*kmsg.BrokerHeartbeatResponse); r.IsFenced {
				t.Fatal("fenced")
			}
		}
		if l.offset != before || c.rebalance != nil {
			t.Errorf("%d records", l.offset-before)
		}
	})
}
