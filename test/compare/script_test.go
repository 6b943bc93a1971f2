package compare

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// step is what came of one request.
type step struct {
	Step    string `json:"step"`
	Request string `json:"request,omitempty"` // its name and version
	How     string `json:"how"`
	Note    string `json:"note,omitempty"`
	Body    any    `json:"body,omitempty"`
}

// scene is a sequence of requests; play runs it.
type scene struct {
	name string
	play func(*script)
}

var scenes []scene

func add(name string, play func(*script)) { scenes = append(scenes, scene{name, play}) }

// sweep adds a scene for each version of an API.
func sweep(name string, from, to int16, play func(*script, int16)) {
	for v := from; v <= to; v++ {
		add(fmt.Sprintf("%s-v%d", name, v), func(s *script) { play(s, v) })
	}
}

// script is a scene in progress. Its methods end the scene by panicking when the broker cannot be worked with.
type script struct {
	addr  string
	scene string
	wires map[string]*wire
	ids   map[string][16]byte // of topics, by name
	names *naming
	steps []step
}

// own makes a name of this scene's.
func (s *script) own(name string) string { return s.scene + "." + name }

// at gives the connection of that name; "" is the one that methods without a name use.
func (s *script) at(name string) *wire {
	w := s.wires[name]
	if w == nil {
		w = &wire{addr: s.addr, client: strings.TrimSuffix("compare-"+name, "-")}
		s.wires[name] = w
	}
	return w
}

func (s *script) fail(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func requestName(req kmsg.Request, v int16) string {
	return fmt.Sprintf("%s v%d", kmsg.NameForKey(req.Key()), v)
}

func (s *script) keep(label string, req kmsg.Request, v int16, r reply) kmsg.Response {
	x := step{Step: label, Request: requestName(req, v), How: r.how, Note: r.note}
	if r.resp == nil {
		r.resp = req.ResponseKind()
	} else {
		x.Body = s.names.normal(r.resp)
	}
	s.steps = append(s.steps, x)
	return r.resp
}

func (s *script) exchange(w *wire, v int16, req kmsg.Request) reply {
	number, err := w.send(req, v)
	if err != nil {
		s.fail("%v", err)
	}
	return w.receive(req, v, number)
}

// ask sends a request and keeps what comes of it. The response is an empty one if none came.
func (s *script) ask(label string, v int16, req kmsg.Request) kmsg.Response {
	return s.keep(label, req, v, s.exchange(s.at(""), v, req))
}

func (s *script) askAt(conn, label string, v int16, req kmsg.Request) kmsg.Response {
	return s.keep(label, req, v, s.exchange(s.at(conn), v, req))
}

// quiet is ask without keeping.
func (s *script) quiet(v int16, req kmsg.Request) kmsg.Response { return s.quietAt("", v, req) }

func (s *script) quietAt(conn string, v int16, req kmsg.Request) kmsg.Response {
	r := s.exchange(s.at(conn), v, req)
	if r.resp == nil {
		return req.ResponseKind()
	}
	return r.resp
}

// until asks again and again until done, at most a few seconds, and keeps the last answer, if label is not empty.
func (s *script) until(label string, v int16, req kmsg.Request, done func(kmsg.Response) bool) kmsg.Response {
	end := time.Now().Add(6 * time.Second)
	for {
		r := s.exchange(s.at(""), v, req)
		if r.resp != nil && sure(done, r.resp) || time.Now().After(end) {
			if label != "" {
				return s.keep(label, req, v, r)
			}
			if r.resp == nil {
				s.fail("no answer to %s", requestName(req, v))
			}
			return r.resp
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// sure is false where a response has not even the shape that done looks at.
func sure(done func(kmsg.Response) bool, r kmsg.Response) (ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return done(r)
}

// pending is a request that waits for its answer.
type pending struct {
	s      *script
	w      *wire
	label  string
	v      int16
	req    kmsg.Request
	number int32
}

func (s *script) begin(conn, label string, v int16, req kmsg.Request) *pending {
	w := s.at(conn)
	number, err := w.send(req, v)
	if err != nil {
		s.fail("%v", err)
	}
	return &pending{s, w, label, v, req, number}
}

// waits keeps whether there is no answer for d.
func (p *pending) waits(d time.Duration) {
	how := answered
	if p.w.quietFor(d) {
		how = waiting
	}
	p.s.steps = append(p.s.steps, step{Step: p.label + ", meanwhile", Request: requestName(p.req, p.v), How: how})
}

func (p *pending) end() kmsg.Response {
	return p.s.keep(p.label, p.req, p.v, p.w.receive(p.req, p.v, p.number))
}

// unanswered sends a request that must get no answer, and keeps whether the next request is the first to get one.
func (s *script) unanswered(label string, v int16, req kmsg.Request) {
	w := s.at("")
	if _, err := w.send(req, v); err != nil {
		s.fail("%v", err)
	}
	r := s.exchange(w, 0, kmsg.NewPtrApiVersionsRequest())
	how := map[string]string{answered: "no answer, as asked", misnumbered: answered}[r.how]
	if how == "" {
		how = r.how
	}
	s.steps = append(s.steps, step{Step: label, Request: requestName(req, v), How: how})
}

// bytes sends a frame made by hand on a connection of its own and keeps how that ended.
func (s *script) bytes(label string, b []byte) {
	w := &wire{addr: s.addr}
	defer w.close()
	if err := w.write(b); err != nil {
		s.fail("%v", err)
	}
	_, how := w.frame(time.Second)
	s.steps = append(s.steps, step{Step: label, How: how})
}

// note keeps a fact that the scene found out itself.
func (s *script) note(label string, v any) {
	s.steps = append(s.steps, step{Step: label, How: "noted", Body: v})
}

// play runs a scene against a broker. The result went through JSON, as a recording did.
func play(addr string, sc scene) (steps []step) {
	s := &script{addr: addr, scene: sc.name, wires: map[string]*wire{}, ids: map[string][16]byte{}, names: newNaming(addr, sc.name)}
	defer func() {
		if e := recover(); e != nil {
			s.steps = append(s.steps, step{Step: "the scene ends", How: fmt.Sprint(e), Note: stackIfBug(e)})
		}
		for _, w := range s.wires {
			w.close()
		}
		b, err := json.Marshal(s.steps)
		if err == nil {
			err = json.Unmarshal(b, &steps)
		}
		if err != nil {
			panic(err)
		}
	}()
	sc.play(s)
	return nil
}

func stackIfBug(e any) string {
	if _, ok := e.(error); ok {
		return string(debug.Stack())
	}
	return ""
}

// playAll runs the scenes several at a time: most of their time is waiting.
func playAll(addr string, sc []scene, width int, done func(scene, []step)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, width)
	var mu sync.Mutex
	for _, x := range sc {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			steps := play(addr, x)
			mu.Lock()
			defer mu.Unlock()
			done(x, steps)
		})
	}
	wg.Wait()
}

// warm waits until the broker's coordinators answer.
func warm(addr string) error {
	s := &script{addr: addr, scene: "warm", wires: map[string]*wire{}, ids: map[string][16]byte{}, names: newNaming(addr, "warm")}
	end := time.Now().Add(30 * time.Second)
	for {
		err := func() (err error) {
			defer func() {
				if e := recover(); e != nil {
					err = fmt.Errorf("%v", e)
				}
			}()
			f := s.quiet(0, findCoordinator("warm")).(*kmsg.FindCoordinatorResponse)
			l := s.quiet(4, kmsg.NewPtrListGroupsRequest()).(*kmsg.ListGroupsResponse)
			c := s.quiet(2, s.commit("warm", -1, "", "warm", 0, 1)).(*kmsg.OffsetCommitResponse)
			s.quiet(4, initProducer())
			if f.ErrorCode != 0 || l.ErrorCode != 0 || c.Topics[0].Partitions[0].ErrorCode != 3 {
				return fmt.Errorf("coordinators are not ready: %d, %d, %d", f.ErrorCode, l.ErrorCode, c.Topics[0].Partitions[0].ErrorCode)
			}
			return nil
		}()
		if err == nil || time.Now().After(end) {
			s.at("").close()
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}
