package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
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
	bare       *exec.Cmd
	pprof      string // address of Runnel's profiles, if they are wanted
}

// common holds for both: what was deleted leaves the disk soon, for the loads share it.
var common = []string{"log.segment.delete.delay.ms=1000"}

// described is a server that is not started yet.
func (b *bench) described(ctx context.Context, name, dir string) (*server, error) {
	dir = filepath.Join(b.dir, name+"-"+dir)
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
	default:
		return nil, fmt.Errorf("no server %q: kafka, runnel or bare", name)
	}
	s.addr = s.process.Addr
	return s, nil
}

// started launches the server and gives the time until it answers Metadata.
func (s *server) started(ctx context.Context) (time.Duration, error) {
	began := time.Now()
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

// answers says whether Metadata names a broker.
func (s *server) answers() bool {
	c, err := net.DialTimeout("tcp", s.addr, time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	q := kmsg.NewPtrMetadataRequest()
	q.Version, q.Topics = 12, []kmsg.MetadataRequestTopic{}
	if _, err := c.Write(formatter.AppendRequest(nil, q, 1)); err != nil {
		return false
	}
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return false
	}
	body := make([]byte, be.Uint32(size[:]))
	if _, err := io.ReadFull(c, body); err != nil {
		return false
	}
	a := kmsg.NewPtrMetadataResponse()
	a.Version = q.Version
	return a.ReadFrom(body[5:]) == nil && len(a.Brokers) == 1
}

func (s *server) usage() (oracle.Usage, error) {
	if s.bare != nil {
		return oracle.UsageOf(s.bare.Process.Pid)
	}
	return s.process.Usage()
}

// end kills the server and deletes what it kept.
func (s *server) end() {
	if s.bare != nil {
		s.bare.Process.Kill()
		s.bare.Wait()
		return
	}
	s.process.Kill()
	os.RemoveAll(filepath.Dir(s.process.Data))
}

// admin runs f with an ordinary client.
func (s *server) admin(f func(*kadm.Client) error) error {
	c, err := kgo.NewClient(kgo.SeedBrokers(s.addr))
	if err != nil {
		return err
	}
	defer c.Close()
	a := kadm.NewClient(c)
	a.SetTimeoutMillis(120000)
	return f(a)
}

func (s *server) create(ctx context.Context, topic string, partitions int) error {
	if s.bare != nil {
		return nil
	}
	return s.admin(func(a *kadm.Client) error {
		if _, err := a.CreateTopic(ctx, int32(partitions), 1, nil, topic); err != nil {
			return err
		}
		return s.led(ctx, a, partitions, topic)
	})
}

// led waits until every partition has a leader.
func (s *server) led(ctx context.Context, a *kadm.Client, partitions int, topics ...string) error {
	for {
		m, err := a.Metadata(ctx, topics...)
		if err != nil {
			return err
		}
		led := 0
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				if p.Err == nil && p.Leader >= 0 {
					led++
				}
			}
		}
		if led == partitions {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (s *server) remove(ctx context.Context, topic string) error {
	if s.bare != nil {
		return nil
	}
	return s.admin(func(a *kadm.Client) error {
		_, err := a.DeleteTopic(ctx, topic)
		return err
	})
}

// profile takes Runnel's CPU profile for d beside a load.
func (s *server) profile(file string, d time.Duration) error {
	r, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.pprof, max(1, int(d.Seconds()))))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, r.Body)
	return err
}
