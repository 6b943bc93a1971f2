package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/test/oracle"
)

// server is one of the compared: "kafka", "runnel" or "bare".
type server struct {
	name, addr string
	process    *oracle.Process // nil for bare
	bare       *bareProcess
	pprof      string // address of Runnel's profiles, if they are wanted
}

// common holds for both: what was deleted leaves the disk soon, for the loads share it.
var common = []string{"log.segment.delete.delay.ms=1000"}

// prepare describes a server that keeps its data in dir; start starts it.
func (b *bench) prepare(ctx context.Context, name, dir string) (*server, error) {
	s := &server{name: name}
	switch name {
	case "kafka":
		if b.kafka == nil {
			k, err := oracle.Fetch(ctx)
			if err != nil {
				return nil, err
			}
			b.kafka = k
		}
		c, err := b.kafka.Cluster(ctx, oracle.ClusterOptions{Dir: dir, Set: common})
		if err != nil {
			return nil, err
		}
		s.process = c.Nodes[0]
	case "runnel":
		set := common
		if b.profiles != "" {
			ports, err := oracle.FreePorts(1)
			if err != nil {
				return nil, err
			}
			s.pprof = fmt.Sprintf("127.0.0.1:%d", ports[0])
			set = append([]string{"runnel.http.listener=" + s.pprof, "runnel.http.pprof=true"}, set...)
		}
		p, err := oracle.Runnel(ctx, oracle.RunnelOptions{Dir: dir, Set: set})
		if err != nil {
			return nil, err
		}
		s.process = p
	case "bare":
		p, err := startBare(dir)
		if err != nil {
			return nil, err
		}
		s.bare, s.addr = p, p.addr
		return s, nil
	default:
		return nil, fmt.Errorf("no server %q: kafka, runnel or bare", name)
	}
	s.addr = s.process.Addr
	return s, nil
}

// start launches the server and gives the time until it answers Metadata.
func (s *server) start(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if s.bare != nil {
		return 0, nil
	}
	if err := s.process.Launch(); err != nil {
		return 0, err
	}
	for !s.answers() {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-s.process.Ended():
			text, _ := os.ReadFile(s.process.Log)
			return 0, fmt.Errorf("%s ended at start:\n%s", s.name, text)
		case <-time.After(time.Millisecond):
		}
	}
	return time.Since(began), nil
}

func (s *server) stop(ctx context.Context) error {
	if s.bare != nil {
		return s.bare.stop()
	}
	return s.process.Stop(ctx)
}

func (s *server) kill() {
	if s.bare != nil {
		s.bare.stop()
		return
	}
	s.process.Kill()
}

// answers says whether Metadata names a broker.
func (s *server) answers() bool {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	q, a := kmsg.NewPtrMetadataRequest(), kmsg.NewPtrMetadataResponse()
	q.Version, q.Topics = 12, []kmsg.MetadataRequestTopic{}
	return exchange(c, q, a) == nil && len(a.Brokers) == 1
}

// exchange sends a request and reads its answer.
func exchange(c net.Conn, q kmsg.Request, a kmsg.Response) error {
	a.SetVersion(q.GetVersion())
	if _, err := c.Write(formatter.AppendRequest(nil, q, 1)); err != nil {
		return err
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return err
	}
	body := make([]byte, be.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	head := 4
	if a.IsFlexible() && a.Key() != 18 {
		head++ // the header's empty tag section
	}
	if len(body) < head {
		return io.ErrUnexpectedEOF
	}
	return a.ReadFrom(body[head:])
}

func (s *server) usage() (oracle.Usage, error) {
	if s.bare != nil {
		return oracle.UsageOf(s.bare.pid())
	}
	return s.process.Usage()
}

// cost is the CPU time that the server spends while work runs.
func (s *server) cost(work func() error) (time.Duration, error) {
	before, err := s.usage()
	if err != nil {
		return 0, err
	}
	if err := work(); err != nil {
		return 0, err
	}
	after, err := s.usage()
	return after.CPU() - before.CPU(), err
}

// admin runs f with an ordinary client.
func (s *server) admin(ctx context.Context, f func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		return err
	}
	defer c.Close()
	a := kadm.NewClient(c)
	a.SetTimeoutMillis(120000)
	return f(ctx, a)
}

// ends asks every partition for its end, until all have one, and adds them up.
func ends(ctx context.Context, a *kadm.Client, topics ...string) (sum int64, err error) {
	for {
		l, err := a.ListEndOffsets(ctx, topics...)
		if err == nil {
			err = l.Error()
		}
		if err == nil {
			sum = 0
			l.Each(func(o kadm.ListedOffset) { sum += o.Offset })
			return sum, nil
		}
		select {
		case <-ctx.Done():
			return 0, errors.Join(err, ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *server) createTopic(ctx context.Context, topic string, partitions int32) error {
	if s.bare != nil {
		return nil
	}
	return s.admin(ctx, func(ctx context.Context, a *kadm.Client) error {
		if _, err := a.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
			return err
		}
		_, err := ends(ctx, a, topic)
		return err
	})
}

// withTopic makes a topic for work and deletes it again.
func (s *server) withTopic(ctx context.Context, topic string, partitions int32, work func() error) error {
	if err := s.createTopic(ctx, topic, partitions); err != nil {
		return err
	}
	if err := work(); err != nil || s.bare != nil {
		return err
	}
	return s.admin(ctx, func(ctx context.Context, a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	})
}

// profile takes Runnel's CPU profile for d beside a load.
func (s *server) profile(dir, name string, d time.Duration) error {
	r, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.pprof, max(1, int(d.Seconds()))))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	f, err := os.Create(filepath.Join(dir, name+".pprof"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, r.Body)
	return err
}
