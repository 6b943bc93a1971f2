package lifecycle

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
)

// Controller sends a request to the active controller and gives its response. It finds the
// controller by itself; an error means that there was no response.
type Controller interface {
	Request(ctx context.Context, rq kmsg.Request) (kmsg.Response, error)
}

// Options configures a Lifecycle.
type Options struct {
	BrokerID      int32
	ClusterID     string
	Incarnation   ids.UUID // random for each start of the process
	Endpoints     []metarec.Endpoint
	Features      []feature.Range
	Rack          *string
	LogDirs       []ids.UUID
	CordonedDirs  []ids.UUID // nil when there is nothing to say
	PreviousEpoch int64      // of the clean stop before, else -1

	HeartbeatInterval time.Duration // broker.heartbeat.interval.ms
	RequestTimeout    time.Duration // half of broker.session.timeout.ms
	InitialTimeout    time.Duration // initial.broker.registration.timeout.ms
	DirFailureTimeout time.Duration // log.dir.failure.timeout.ms

	Controller Controller
	Now        func() time.Time
	Events     Events
}

// Events are told as things happen; nil ones are not. They must not block or call back.
type Events struct {
	State  func(State)
	Epoch  func(epoch int64)
	Fenced func(bool)
	Failed func(rq kmsg.Request, err error) // a request failed and will be tried again
}

func (o Options) withDefaults() Options {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&o.HeartbeatInterval, 2*time.Second)
	set(&o.RequestTimeout, 4500*time.Millisecond)
	set(&o.InitialTimeout, time.Minute)
	set(&o.DirFailureTimeout, 30*time.Second)
	return o
}

// Lifecycle is a running broker's life.
type Lifecycle struct {
	opt Options

	mu struct {
		sync.Mutex
		*machine
		told     State // last state that was published
		toldErr  bool
		isFenced bool
	}
	epoch atomic.Int64
	state atomic.Int32

	wake     chan struct{}
	unfenced chan struct{}
	done     chan struct{} // closed when nothing will be sent any more
	stop     context.CancelFunc
	ended    chan struct{}
}

// Start registers the broker and keeps its session until Shutdown or Close.
func Start(opt Options) *Lifecycle {
	l := &Lifecycle{
		opt: opt.withDefaults(), wake: make(chan struct{}, 1), unfenced: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{}),
	}
	l.mu.machine = newMachine(&l.opt, l.opt.Now())
	l.mu.isFenced = true
	l.epoch.Store(noEpoch)
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	l.update(func(*machine) {})
	go l.run(ctx)
	return l
}

// Epoch is the broker's epoch, -1 before its registration.
func (l *Lifecycle) Epoch() int64 { return l.epoch.Load() }

// State is the broker's state.
func (l *Lifecycle) State() State { return State(l.state.Load()) }

// Unfenced is closed when the broker has become Running.
func (l *Lifecycle) Unfenced() <-chan struct{} { return l.unfenced }

// Done is closed when the broker may stop, or has failed for good (Err).
func (l *Lifecycle) Done() <-chan struct{} { return l.done }

// Err is why the broker failed for good, nil if it did not.
func (l *Lifecycle) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.failure
}

// CaughtUp says that the broker's image includes the record at offset.
func (l *Lifecycle) CaughtUp(offset int64) { l.update(func(m *machine) { m.reached(offset) }) }

// Ready says that logs are loaded and listeners open: the broker wants to be unfenced.
func (l *Lifecycle) Ready() { l.update((*machine).setReady) }

// DirFailed says that a log directory went offline.
func (l *Lifecycle) DirFailed(dir ids.UUID) {
	l.update(func(m *machine) { m.dirFailed(dir, l.opt.Now()) })
}

// Cordon says which directories take no new replicas.
func (l *Lifecycle) Cordon(dirs []ids.UUID) { l.update(func(m *machine) { m.cordon(dirs) }) }

// Unregistered says that the image has lost the registration with this epoch.
func (l *Lifecycle) Unregistered(epoch int64) {
	l.update(func(m *machine) { m.unregistered(epoch) })
}

// Hurry sends a heartbeat now, for others who wait for how far this broker has read.
func (l *Lifecycle) Hurry() { l.update(func(m *machine) { m.news = true }) }

// Shutdown takes leave: it returns when the controller has moved leaderships away and
// lets the broker go, or when ctx ends.
func (l *Lifecycle) Shutdown(ctx context.Context) error {
	l.update((*machine).shutdown)
	select {
	case <-l.done:
		return l.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once and waits for the goroutine.
func (l *Lifecycle) Close() {
	l.stop()
	<-l.ended
}

// update changes the machine, publishes what that did, and wakes the loop.
func (l *Lifecycle) update(f func(*machine)) {
	l.mu.Lock()
	f(l.mu.machine)
	l.publishLocked()
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Lifecycle) publishLocked() {
	m, ev := l.mu.machine, l.opt.Events
	if m.epoch != l.epoch.Load() {
		l.epoch.Store(m.epoch)
		if ev.Epoch != nil {
			ev.Epoch(m.epoch)
		}
	}
	if m.fenced != l.mu.isFenced {
		l.mu.isFenced = m.fenced
		if ev.Fenced != nil {
			ev.Fenced(m.fenced)
		}
	}
	if m.state != l.mu.told {
		l.mu.told = m.state
		l.state.Store(int32(m.state))
		if m.state == Running {
			close(l.unfenced)
		}
		if ev.State != nil {
			ev.State(m.state)
		}
	}
	if m.finished() && !l.mu.toldErr {
		l.mu.toldErr = true
		close(l.done)
	}
}

func (l *Lifecycle) run(ctx context.Context) {
	defer close(l.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		l.mu.Lock()
		rq, at := l.mu.next(l.opt.Now())
		l.publishLocked()
		l.mu.Unlock()
		if rq != nil {
			l.send(ctx, rq)
			if ctx.Err() == nil {
				continue
			}
		}
		var alarm <-chan time.Time
		if !at.IsZero() {
			timer.Reset(at.Sub(l.opt.Now()))
			alarm = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-alarm:
		}
	}
}

func (l *Lifecycle) send(ctx context.Context, rq kmsg.Request) {
	sending, cancel := context.WithTimeout(ctx, l.opt.RequestTimeout)
	resp, err := l.opt.Controller.Request(sending, rq)
	cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.answered(rq, resp, err, l.opt.Now())
	l.publishLocked()
}
