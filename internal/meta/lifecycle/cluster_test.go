package lifecycle_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/controller"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/lifecycle"
	"runnel/internal/meta/metarec"
)

// cluster is brokers' lives over the real controller and a log that commits at once and
// feeds every broker that runs.
type cluster struct {
	t    *testing.T
	ctl  *controller.Controller
	mu   sync.Mutex
	img  *image.Image
	last int64
	live map[int32]*lifecycle.Lifecycle
	cut  map[int32]bool
	gen  byte
}

func newCluster(t *testing.T, nodeID int32) *cluster {
	c := &cluster{t: t, img: image.Empty(), live: map[int32]*lifecycle.Lifecycle{}, cut: map[int32]bool{}}
	c.ctl = controller.New(controller.Options{NodeID: nodeID, ClusterID: "c", Log: c, Now: time.Now, Random: rand.New(rand.NewPCG(3, 3)).Uint64})
	c.ctl.Lead(1, image.Empty(), 1)
	return c
}

func (c *cluster) Append(epoch int32, records [][]byte, done func(error)) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	decoded := make([]metarec.Record, len(records))
	for i, b := range records {
		r, _, err := metarec.Decode(b)
		if err != nil {
			return 0, err
		}
		decoded[i] = r
	}
	c.last += int64(len(records))
	last := c.last
	img, _, err := c.img.Apply(decoded, last, epoch)
	if err != nil {
		c.t.Error(err)
		return 0, err
	}
	c.img = img
	live := make([]*lifecycle.Lifecycle, 0, len(c.live))
	for _, l := range c.live {
		live = append(live, l)
	}
	go func() {
		done(nil)
		for _, l := range live {
			l.CaughtUp(last)
		}
	}()
	return last, nil
}

func (c *cluster) image() *image.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.img
}

type line struct {
	c  *cluster
	id int32
}

func (l line) Request(ctx context.Context, rq kmsg.Request) (kmsg.Response, error) {
	l.c.mu.Lock()
	cut := l.c.cut[l.id]
	l.c.mu.Unlock()
	if cut {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return l.c.ctl.Handle(ctx, controller.Request{Body: rq})
}

func (c *cluster) start(id int32, previous int64) *lifecycle.Lifecycle {
	c.gen++
	l := lifecycle.Start(lifecycle.Options{
		BrokerID: id, ClusterID: "c", Incarnation: ids.UUID{byte(id), c.gen}, LogDirs: []ids.UUID{{0xd, byte(id)}}, PreviousEpoch: previous,
		Endpoints: []metarec.Endpoint{{Name: "PLAINTEXT", Host: "h", Port: 9092}}, Features: feature.Supported(), Controller: line{c, id}, Now: time.Now,
	})
	c.mu.Lock()
	c.live[id] = l
	last := c.last
	c.mu.Unlock()
	l.CaughtUp(last)
	l.Ready()
	return l
}

func (c *cluster) kill(id int32) {
	c.mu.Lock()
	l := c.live[id]
	delete(c.live, id)
	c.mu.Unlock()
	l.Close()
}

func (c *cluster) create(name string, partitions int32, factor int16) {
	c.t.Helper()
	r, err := c.ctl.Handle(c.t.Context(), controller.Request{Body: &kmsg.CreateTopicsRequest{Version: 7,
		Topics: []kmsg.CreateTopicsRequestTopic{{Topic: name, NumPartitions: partitions, ReplicationFactor: factor}}}})
	if err != nil || r.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode != 0 {
		c.t.Fatalf("%+v %v", r, err)
	}
}

func TestClusterLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100)
		defer c.ctl.Close()
		began := time.Now()
		for id := range int32(3) {
			<-c.start(id+1, -1).Unfenced()
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("starting three brokers took %v of virtual time", took)
		}
		c.create("t", 9, 3)

		// kill -9: fenced when the session ends, leaders move (measured.md 27).
		c.kill(2)
		time.Sleep(8 * time.Second)
		if c.image().Broker(2).Fenced {
			t.Error("fenced before the session's end")
		}
		time.Sleep(3100 * time.Millisecond)
		for _, p := range c.image().Topic("t").Partitions {
			if p.Leader == 2 || p.Leader < 0 {
				t.Errorf("%+v", p)
			}
		}
		<-c.start(2, -1).Unfenced()

		// A clean stop lets the broker go in a moment, and back in at once.
		epoch := c.live[1].Epoch()
		began = time.Now()
		c.live[2].Hurry()
		if err := c.live[1].Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("stopping took %v", took)
		}
		for _, p := range c.image().Topic("t").Partitions {
			if p.Leader == 1 || p.Leader < 0 {
				t.Errorf("%+v", p)
			}
		}
		c.kill(1)
		began = time.Now()
		<-c.start(1, epoch).Unfenced()
		if took := time.Since(began); took > 0 {
			t.Errorf("coming back took %v", took)
		}

		// A cut line: fenced, and unfenced by the first heartbeat that gets through.
		c.mu.Lock()
		c.cut[3] = true
		c.mu.Unlock()
		time.Sleep(12 * time.Second)
		if !c.image().Broker(3).Fenced {
			t.Error("not fenced")
		}
		c.mu.Lock()
		c.cut[3] = false
		c.mu.Unlock()
		time.Sleep(7 * time.Second)
		if c.image().Broker(3).Fenced {
			t.Error("not unfenced")
		}
		for id := range c.live {
			c.live[id].Close()
		}
	})
}

// A lone node killed and started again serves at once: its controller is of the same process.
func TestLoneNodeRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		<-c.start(1, -1).Unfenced()
		c.create("t", 4, 1)
		c.kill(1)
		c.ctl.Resign(1)
		c.ctl.Lead(2, c.image(), c.last+1)
		began := time.Now()
		<-c.start(1, -1).Unfenced()
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
		for _, p := range c.image().Topic("t").Partitions {
			if p.Leader != 1 {
				t.Errorf("%+v", p)
			}
		}
		// Its own clean stop: everything goes offline, and it may go.
		began = time.Now()
		if err := c.live[1].Shutdown(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		c.kill(1)
		c.ctl.Close()
	})
}

func TestShutdownWithoutController(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 100)
		defer c.ctl.Close()
		l := c.start(1, -1)
		<-l.Unfenced()
		c.mu.Lock()
		c.cut[1] = true
		c.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := l.Shutdown(ctx); err != context.DeadlineExceeded {
			t.Errorf("%v", err)
		}
		if l.State() != lifecycle.PendingControlledShutdown {
			t.Errorf("%v", l.State())
		}
		l.Close()
	})
}
