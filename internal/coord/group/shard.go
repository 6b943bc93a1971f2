package group

import (
	"container/heap"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/coord/runtime"
	"runnel/internal/kit/record"
)

// Config is what a coordinator is configured with; a snapshot that is never changed.
type Config struct {
	MinSession, MaxSession time.Duration // group.min.session.timeout.ms, group.max.session.timeout.ms
	InitialDelay           time.Duration // group.initial.rebalance.delay.ms
	MaxSize                int           // group.max.size
	MaxMetadata            int           // offset.metadata.max.bytes
	Retention              time.Duration // offsets.retention.minutes
	RetentionCheck         time.Duration // offsets.retention.check.interval.ms
	ConsumerSession        time.Duration // group.consumer.session.timeout.ms
}

// DefaultConfig is Kafka's.
func DefaultConfig() *Config {
	return &Config{
		MinSession: 6 * time.Second, MaxSession: 30 * time.Minute, InitialDelay: 3 * time.Second, MaxSize: math.MaxInt32,
		MaxMetadata: 4096, Retention: 10080 * time.Minute, RetentionCheck: 10 * time.Minute, ConsumerSession: 45 * time.Second,
	}
}

// Shard is the groups of one partition of __consumer_offsets. It is pure: the runtime
// hands it records, requests and the time, one after another.
type Shard struct {
	config func() *Config
	groups map[string]*group
	// open holds what transactions wrote and have not settled, by producer.
	open   map[int64]map[openKey]*committed
	timers timers
	expiry timer
	loaded time.Time
}

type openKey struct {
	group string
	tp    topicPartition
}

var _ runtime.Shard = (*Shard)(nil)

// NewShard makes an empty shard.
func NewShard(config func() *Config) *Shard {
	return &Shard{config: config, groups: map[string]*group{}, open: map[int64]map[openKey]*committed{}}
}

// timer fires once at its time. Moving it later costs nothing: the heap's entry is looked
// at when it comes up.
type timer struct {
	at     time.Time // zero off
	queued time.Time // of the earliest entry in the heap, zero none
	fire   func(now time.Time) []runtime.Result
}

type timerEntry struct {
	at time.Time
	t  *timer
}

type timers []timerEntry

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *timers) Push(x any)        { *h = append(*h, x.(timerEntry)) }
func (h *timers) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = timerEntry{}
	*h = old[:len(old)-1]
	return e
}

func (s *Shard) arm(t *timer, at time.Time, fire func(now time.Time) []runtime.Result) {
	t.at, t.fire = at, fire
	if t.queued.IsZero() || at.Before(t.queued) {
		t.queued = at
		heap.Push(&s.timers, timerEntry{at, t})
	}
}

func (t *timer) off() { t.at, t.fire = time.Time{}, nil }

// Next is when the earliest timer may be due.
func (s *Shard) Next() time.Time {
	if len(s.timers) == 0 {
		return time.Time{}
	}
	return s.timers[0].at
}

// Tick fires what is due.
func (s *Shard) Tick(now time.Time) (out []runtime.Result) {
	for len(s.timers) > 0 && !now.Before(s.timers[0].at) {
		e := heap.Pop(&s.timers).(timerEntry)
		t := e.t
		if !e.at.Equal(t.queued) {
			continue // an earlier entry has taken its place
		}
		t.queued = time.Time{}
		switch {
		case t.at.IsZero():
		case now.Before(t.at):
			s.arm(t, t.at, t.fire)
		default:
			fire := t.fire
			t.off()
			out = append(out, fire(now)...)
		}
	}
	return out
}

func (s *Shard) group(id string) *group {
	g := s.groups[id]
	if g == nil {
		g = newGroup(id)
		s.groups[id] = g
	}
	return g
}

// Replay takes in a record of the log. Records of unknown types stay what they are.
func (s *Shard) Replay(src runtime.Source, r runtime.Record) error {
	typ, id, err := keyType(r.Key)
	if err != nil {
		return err
	}
	switch typ {
	case typeLegacyOffset, typeOffset:
		return s.replayOffset(src, r)
	case typeGroup:
		return s.replayGroup(id, r.Value)
	}
	f, known := foreignTypes[typ]
	if !known {
		return fmt.Errorf("record type %d is not known", typ)
	}
	s.replayForeign(id, typ, f, r)
	return nil
}

func (s *Shard) replayOffset(src runtime.Source, r runtime.Record) error {
	id, tp, err := parseOffsetKey(r.Key)
	if err != nil {
		return err
	}
	if r.Value == nil {
		s.dropOffset(id, tp)
		return nil
	}
	c, err := parseOffset(r.Value)
	if err != nil {
		return err
	}
	c.recordAt = src.Offset
	if src.ProducerID == record.NoProducer {
		s.group(id).offsets[tp] = c
		return nil
	}
	s.group(id) // a group with pending offsets exists
	txn := s.open[src.ProducerID]
	if txn == nil {
		txn = map[openKey]*committed{}
		s.open[src.ProducerID] = txn
	}
	txn[openKey{id, tp}] = c
	return nil
}

func (s *Shard) dropOffset(id string, tp topicPartition) {
	if g := s.groups[id]; g != nil {
		delete(g.offsets, tp)
	}
	for pid, txn := range s.open {
		delete(txn, openKey{id, tp})
		if len(txn) == 0 {
			delete(s.open, pid)
		}
	}
}

// EndTransaction settles the offsets that a producer's transaction wrote. A plain commit
// that came after them wins.
func (s *Shard) EndTransaction(producerID int64, _ int16, commit bool) error {
	txn := s.open[producerID]
	delete(s.open, producerID)
	if !commit {
		return nil
	}
	for k, c := range txn {
		g := s.group(k.group)
		if have := g.offsets[k.tp]; have == nil || have.recordAt < c.recordAt {
			g.offsets[k.tp] = c
		}
	}
	return nil
}

// unstable reports an offset that an open transaction may still change.
func (s *Shard) unstable(id string, tp topicPartition) bool {
	for _, txn := range s.open {
		if txn[openKey{id, tp}] != nil {
			return true
		}
	}
	return false
}

func (s *Shard) replayGroup(id string, value []byte) error {
	if value == nil {
		if g := s.groups[id]; g != nil {
			if len(g.offsets) == 0 && len(g.keys) == 0 && !s.openFor(id) {
				delete(s.groups, id)
				return nil
			}
			v := kmsg.NewGroupMetadataValue()
			v.Version = 3
			kind := g.kind
			g.load(&v)
			g.kind, g.stored, g.since = kind, false, -1
		}
		return nil
	}
	v, err := parseGroup(value)
	if err != nil {
		return err
	}
	s.group(id).load(v)
	return nil
}

func (s *Shard) openFor(id string) bool {
	for _, txn := range s.open {
		for k := range txn {
			if k.group == id {
				return true
			}
		}
	}
	return false
}

// replayForeign notes which records of other protocols a group has, and by them its kind.
func (s *Shard) replayForeign(id string, typ int16, f foreign, r runtime.Record) {
	g := s.groups[id]
	if g == nil {
		if r.Value == nil {
			return
		}
		g = s.group(id)
	}
	_, had := g.keys[string(r.Key)]
	step := 0
	switch {
	case r.Value == nil && had:
		delete(g.keys, string(r.Key))
		step = -1
	case r.Value != nil && !had:
		g.keys[string(r.Key)] = typ
		step = 1
	}
	if f.group {
		g.groupKeys += step
	}
	if f.member {
		g.memberKeys += step
	}
	switch {
	case g.groupKeys > 0 && f.group && r.Value != nil:
		g.kind = f.kind
	case g.groupKeys == 0 && step < 0 && f.group:
		g.kind = Classic
		if len(g.offsets) == 0 && len(g.keys) == 0 && !g.stored && !s.openFor(id) {
			delete(s.groups, id)
		}
	}
}

// Loaded starts the sessions of the members that the log told of, and the expiry.
func (s *Shard) Loaded(now time.Time) (out []runtime.Result) {
	s.loaded = now
	for id, g := range s.groups {
		if g.kind == Classic && !g.stored && len(g.offsets) == 0 && len(g.keys) == 0 && !s.openFor(id) {
			delete(s.groups, id) // all that the log had of it was deleted
			continue
		}
		if g.kind != Classic {
			continue
		}
		for _, m := range g.order {
			s.session(g, m, m.session, now)
		}
		if len(g.order) > s.config().MaxSize {
			out = append(out, s.prepare(g, now)...)
		}
	}
	s.armExpiry(now)
	return out
}

// armExpiry lets the next look for expired offsets come, while there are any groups.
func (s *Shard) armExpiry(now time.Time) {
	if s.expiry.at.IsZero() && len(s.groups) > 0 && !s.loaded.IsZero() {
		s.arm(&s.expiry, now.Add(s.config().RetentionCheck), s.expire)
	}
}

// Unload answers everyone who waits in a group.
func (s *Shard) Unload(err error) {
	code := runtime.ClientError(err).Code
	for _, g := range s.groups {
		for _, m := range g.order {
			m.answerJoin(failedJoin(m.id, code))
			m.answerSync(failedSync(code))
		}
	}
}

// inUse reports a group of another protocol that may have living members. This node does
// not serve their protocol, so after a takeover they are given the time of one session to
// be thought alive.
func (s *Shard) inUse(g *group, now time.Time) bool {
	return g.kind != Classic && g.memberKeys > 0 && now.Before(s.loaded.Add(s.config().ConsumerSession))
}

func codeOf(e *kerr.Error) int16 {
	if e == nil {
		return 0
	}
	return e.Code
}
