package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/vfs"
	"runnel/internal/serve/api"
	"runnel/internal/wire"
)

// pipeListener hands net.Pipe ends to a server, so that everything runs in virtual time.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial() net.Conn {
	a, b := net.Pipe()
	l.conns <- b
	return a
}

type harness struct {
	t   *testing.T
	l   *pipeListener
	s   *Server
	log *bytes.Buffer
}

func newHarness(t *testing.T, limits Limits, register func(*api.Registry)) *harness {
	if limits.MaxRequestBytes == 0 {
		limits.MaxRequestBytes = 1 << 20
	}
	h := &harness{t: t, l: newPipeListener(), log: &bytes.Buffer{}}
	r := &api.Registry{}
	register(r)
	h.s = New(Options{Name: "TEST", Listener: h.l, Registry: r, Limits: limits, Budget: NewBudget(1 << 20), Log: slog.New(slog.NewTextHandler(h.log, nil))})
	go h.s.Serve()
	t.Cleanup(h.s.Close)
	return h
}

func request(key kmsg.Key, version int16, corr int32) []byte {
	rq := kmsg.RequestForKey(int16(key))
	rq.SetVersion(version)
	b := wire.AppendHeader(make([]byte, 4), wire.Header{Key: int16(key), Version: version, CorrelationID: corr, ClientID: "test"}, rq.IsFlexible())
	b = rq.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// answer reads one frame and gives its correlation id.
func answer(t *testing.T, c net.Conn) int32 {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		t.Fatal("no answer:", err)
	}
	b := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	return int32(binary.BigEndian.Uint32(b))
}

func closed(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Fatalf("got %d bytes instead of the end of the connection", n)
	}
}

func send(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	go c.Write(b)
}

// Only a reply with Later lets the next request start, and answers keep their order.
func TestAnswersLeaveInRequestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		started := []int32{}
		h := newHarness(t, Limits{}, func(r *api.Registry) {
			r.Add(api.API{Key: int16(kmsg.Produce), Min: 3, Max: 13, Aliases: true, Handle: func(_ api.Context, rq *api.Request) api.Reply {
				started = append(started, rq.CorrelationID)
				resp := rq.Body.ResponseKind()
				return api.Reply{Later: func(ctx api.Context) api.Body {
					select {
					case <-release:
					case <-ctx.Done():
					}
					return resp
				}}
			}})
			r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: func(_ api.Context, rq *api.Request) api.Reply {
				started = append(started, rq.CorrelationID)
				return api.Done(rq.Body.ResponseKind())
			}})
		})
		c := h.l.dial()
		send(t, c, bytes.Join([][]byte{request(kmsg.Produce, 9, 1), request(kmsg.Produce, 9, 2), request(kmsg.Metadata, 9, 3)}, nil))
		synctest.Wait()
		if len(started) != 3 {
			t.Fatalf("requests started before the first answer: %v", started)
		}
		close(release)
		for want := int32(1); want <= 3; want++ {
			if got := answer(t, c); got != want {
				t.Fatalf("answer %d came, want %d", got, want)
			}
		}
		c.Close()
		synctest.Wait()
	})
}

// A request without Later holds the next one back.
func TestOtherRequestsRunOneAfterAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		started := 0
		h := newHarness(t, Limits{}, func(r *api.Registry) {
			r.Add(api.API{Key: int16(kmsg.Fetch), Min: 4, Max: 18, Handle: func(ctx api.Context, rq *api.Request) api.Reply {
				started++
				select {
				case <-release:
				case <-ctx.Done():
				}
				return api.Done(rq.Body.ResponseKind())
			}})
		})
		c := h.l.dial()
		send(t, c, append(request(kmsg.Fetch, 12, 1), request(kmsg.Fetch, 12, 2)...))
		synctest.Wait()
		if started != 1 {
			t.Fatalf("%d requests run at once", started)
		}
		close(release)
		if answer(t, c) != 1 || answer(t, c) != 2 {
			t.Fatal("wrong order")
		}
		c.Close()
		synctest.Wait()
	})
}

func TestMalformedFramesCloseOnlyTheirConnection(t *testing.T) {
	lie := func(n uint32, rest ...byte) []byte { return append(binary.BigEndian.AppendUint32(nil, n), rest...) }
	hugeArray := request(kmsg.Metadata, 1, 1)
	copy(hugeArray[len(hugeArray)-4:], []byte{0x7f, 0xff, 0xff, 0xff})
	tests := []struct {
		name  string
		bytes []byte
		say   string
	}{
		{"negative size", lie(0xffffffff), "is negative"},
		{"size above the limit", lie(2 << 20), "socket.request.max.bytes=1048576"},
		{"shorter than its header", lie(2, 0, 3), "malformed request header"},
		{"client id past the end", lie(10, 0, 3, 0, 1, 0, 0, 0, 1, 0x7f, 0xff), "malformed request header"},
		{"unknown key", lie(10, 0, 99, 0, 1, 0, 0, 0, 1, 0xff, 0xff), "API key 99 is not served"},
		{"unknown version", request(kmsg.Metadata, 1, 1)[:4:4], ""},
		{"array of 2^31 elements", hugeArray, "malformed request body"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tc.say == "" {
					tc.bytes = request(kmsg.Metadata, 1, 1)
					tc.bytes[7] = 77
					tc.say = "version 77 is not served; Metadata is served from 0 to 13"
				}
				h := newHarness(t, Limits{}, func(r *api.Registry) {
					r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: func(_ api.Context, rq *api.Request) api.Reply {
						return api.Done(rq.Body.ResponseKind())
					}})
				})
				good := h.l.dial()
				bad := h.l.dial()
				send(t, bad, tc.bytes)
				closed(t, bad)
				send(t, good, request(kmsg.Metadata, 9, 5))
				if answer(t, good) != 5 {
					t.Fatal("another connection suffered")
				}
				good.Close()
				synctest.Wait()
				if !strings.Contains(h.log.String(), tc.say) {
					t.Errorf("the log does not say %q: %s", tc.say, h.log)
				}
			})
		})
	}
}

func TestIdleAndSlowConnectionsEnd(t *testing.T) { // P5
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Limits{Idle: time.Minute}, func(r *api.Registry) {
			r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: func(_ api.Context, rq *api.Request) api.Reply {
				return api.Done(rq.Body.ResponseKind())
			}})
		})
		began := time.Now()
		idle := h.l.dial()
		closed(t, idle)
		if d := time.Since(began); d < 50*time.Second || d > 70*time.Second {
			t.Errorf("an idle connection lived %v", d)
		}
		// One byte every ten seconds is activity, but no way to send a frame.
		began = time.Now()
		slow := h.l.dial()
		frame := request(kmsg.Metadata, 9, 1)
		for _, b := range frame {
			if _, err := slow.Write([]byte{b}); err != nil {
				break
			}
			time.Sleep(10 * time.Second)
		}
		if d := time.Since(began); d > 2*time.Minute {
			t.Errorf("a slow loris lived %v", d)
		}
	})
}

func TestConnectionLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Limits{MaxConnections: 2}, func(*api.Registry) {})
		a, b := h.l.dial(), h.l.dial()
		third := make(chan net.Conn)
		go func() { third <- h.l.dial() }()
		synctest.Wait()
		select {
		case <-third:
			t.Fatal("a third connection was accepted")
		default:
		}
		a.Close()
		synctest.Wait()
		c := <-third
		b.Close()
		c.Close()
		synctest.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Limits{MaxPerIP: 1}, func(*api.Registry) {})
		a := h.l.dial()
		synctest.Wait()
		b := h.l.dial()
		closed(t, b)
		a.Close()
		synctest.Wait()
	})
}

func TestAHandlersPanicEndsOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Limits{}, func(r *api.Registry) {
			r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: func(api.Context, *api.Request) api.Reply { panic("boom") }})
		})
		c := h.l.dial()
		send(t, c, request(kmsg.Metadata, 9, 1))
		closed(t, c)
		synctest.Wait()
		if !strings.Contains(h.log.String(), "boom") {
			t.Error("the panic is not in the log")
		}
	})
}

// The bytes of an answer with file ranges are those of kmsg's, over a real socket and a pipe.
func TestFetchAnswersReachTheClient(t *testing.T) {
	mem, disk := vfs.FS(vfs.NewMem()), vfs.FS(vfs.OS{})
	for name, fs := range map[string]vfs.FS{"memory": mem, "sendfile": disk} {
		t.Run(name, func(t *testing.T) {
			content := bytes.Repeat([]byte("0123456789abcdef"), 20<<10)
			f, err := fs.OpenFile(t.TempDir()+"/x", vfs.ReadWrite|vfs.Create)
			if name == "memory" {
				f, err = fs.OpenFile("x", vfs.ReadWrite|vfs.Create)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt(content, 0); err != nil {
				t.Fatal(err)
			}
			released := 0
			region := func(off, n int64) vfs.Region {
				return vfs.Region{File: f, Off: off, Len: n, Release: func() { released++ }}
			}
			r := &api.Registry{}
			r.Add(api.API{Key: int16(kmsg.Fetch), Min: 4, Max: 18, Handle: func(api.Context, *api.Request) api.Reply {
				return api.Reply{Fetch: &wire.FetchResponse{Version: 12, Topics: []wire.FetchTopic{{Name: "t", Partitions: []wire.FetchPartition{
					{Index: 0, Records: region(16, 100)}, {Index: 1, Records: region(0, int64(len(content)))}, {Index: 2},
				}}}}}
			}})
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			s := New(Options{Name: "T", Listener: l, Registry: r, Limits: Limits{MaxRequestBytes: 1 << 20, Write: time.Minute}, Budget: NewBudget(1 << 20), Log: slog.New(slog.DiscardHandler)})
			go s.Serve()
			defer s.Close()
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 3 {
				c.Write(append(request(kmsg.Fetch, 12, 1), request(kmsg.Fetch, 12, 2)...))
				for corr := int32(1); corr <= 2; corr++ {
					var size [4]byte
					if _, err := io.ReadFull(c, size[:]); err != nil {
						t.Fatal(err)
					}
					b := make([]byte, binary.BigEndian.Uint32(size[:]))
					if _, err := io.ReadFull(c, b); err != nil {
						t.Fatal(err)
					}
					resp := kmsg.NewPtrFetchResponse()
					resp.Version = 12
					if err := resp.ReadFrom(b[5:]); err != nil {
						t.Fatal(err)
					}
					p := resp.Topics[0].Partitions
					if int32(binary.BigEndian.Uint32(b)) != corr || !bytes.Equal(p[0].RecordBatches, content[16:116]) || !bytes.Equal(p[1].RecordBatches, content) || p[2].RecordBatches == nil {
						t.Fatal("other bytes came than were sent")
					}
				}
			}
			s.Close()
			if released != 12 {
				t.Errorf("%d ranges released, want 12", released)
			}
		})
	}
}

// Two requests whose decoded form exceeds the whole budget each: one after the other, both
// are answered, and nothing stays charged.
func TestRequestsLargerThanTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Limits{}, func(r *api.Registry) {
			r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: func(_ api.Context, rq *api.Request) api.Reply {
				return api.Done(rq.Body.ResponseKind())
			}})
		})
		big := func(corr int32) []byte {
			rq := kmsg.NewPtrMetadataRequest()
			rq.Version = 9
			for range 20000 {
				mt := kmsg.NewMetadataRequestTopic()
				mt.Topic = kmsg.StringPtr("some-topic")
				rq.Topics = append(rq.Topics, mt)
			}
			b := wire.AppendHeader(make([]byte, 4), wire.Header{Key: 3, Version: 9, CorrelationID: corr}, true)
			b = rq.AppendTo(b)
			binary.BigEndian.PutUint32(b, uint32(len(b)-4))
			return b
		}
		a, b := h.l.dial(), h.l.dial()
		send(t, a, big(1))
		send(t, b, big(2))
		if answer(t, a) != 1 || answer(t, b) != 2 {
			t.Fatal("wrong answers")
		}
		synctest.Wait()
		if used := h.s.opts.Budget.Used(); used != 0 {
			t.Errorf("%d bytes are still charged", used)
		}
		a.Close()
		b.Close()
		synctest.Wait()
	})
}

func TestBudgetIsFairAndGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		ctx := context.Background()
		if err := b.Acquire(ctx, 80); err != nil {
			t.Fatal(err)
		}
		var order []string
		take := func(name string, n int64) {
			go func() {
				if b.Acquire(ctx, n) == nil {
					order = append(order, name)
				}
			}()
			synctest.Wait()
		}
		take("large", 90)
		take("small", 20) // would fit, but came later
		gone, cancel := context.WithCancel(ctx)
		var gaveUp error
		go func() { gaveUp = b.Acquire(gone, 5) }()
		synctest.Wait()
		cancel()
		synctest.Wait()
		if !errors.Is(gaveUp, context.Canceled) || len(order) != 0 {
			t.Fatalf("gave up with %v, order %v", gaveUp, order)
		}
		b.Release(80)
		synctest.Wait()
		if len(order) != 1 || order[0] != "large" {
			t.Fatalf("order %v", order)
		}
		b.Release(90)
		synctest.Wait()
		b.Release(20)
		if b.Used() != 0 {
			t.Fatalf("%d bytes are still taken", b.Used())
		}
		if err := b.Acquire(ctx, 1000); err != nil { // larger than the budget: alone
			t.Fatal(err)
		}
	})
}
