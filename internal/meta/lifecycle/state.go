package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
)

// State is a broker's state, numbered as Kafka's BrokerState gauge.
type State int8

const (
	NotRunning                State = 0
	Starting                  State = 1 // not registered, or its image is behind
	Recovery                  State = 2 // caught up, and fenced
	Running                   State = 3
	PendingControlledShutdown State = 6
	ShuttingDown              State = 7
)

func (s State) String() string {
	switch s {
	case NotRunning:
		return "NOT_RUNNING"
	case Starting:
		return "STARTING"
	case Recovery:
		return "RECOVERY"
	case Running:
		return "RUNNING"
	case PendingControlledShutdown:
		return "PENDING_CONTROLLED_SHUTDOWN"
	case ShuttingDown:
		return "SHUTTING_DOWN"
	}
	return "UNKNOWN"
}

const (
	firstBackoff = 20 * time.Millisecond
	noEpoch      = int64(-1)
)

// machine decides what to send when. All times are handed in.
type machine struct {
	opt   *Options
	state State
	epoch int64

	registered bool // the registration with this epoch stands, as far as we know
	ready      bool // WantFence is over
	stopping   bool // WantShutdown
	caughtUp   bool
	fenced     bool

	offset   int64 // that the broker's image has reached
	offline  map[ids.UUID]offlineDir
	cordoned []ids.UUID // nil until said

	inFlight bool
	news     bool // something changed since the last request was made
	nextAt   time.Time
	backoff  time.Duration
	patience time.Duration // between heartbeats while waiting for leave to stop
	giveUp   time.Time     // of the first registration
	lastErr  error         // of the request before
	failure  error         // final
}

// offlineDir is a failed directory: told once a heartbeat with it was answered.
type offlineDir struct {
	since time.Time
	told  bool
}

func newMachine(opt *Options, now time.Time) *machine {
	return &machine{
		opt: opt, state: Starting, epoch: noEpoch, offset: -1, fenced: true, offline: map[ids.UUID]offlineDir{},
		cordoned: slices.Clone(opt.CordonedDirs), nextAt: now, giveUp: now.Add(opt.InitialTimeout),
	}
}

// finished reports that nothing will be sent any more.
func (m *machine) finished() bool { return m.failure != nil || m.state == ShuttingDown }

// next gives the request to send now, or the time to ask again; a zero time means only
// when something happens.
func (m *machine) next(now time.Time) (rq kmsg.Request, at time.Time) {
	if m.finished() || m.inFlight {
		return nil, time.Time{}
	}
	if m.checkDeadlines(now); m.failure != nil {
		return nil, time.Time{}
	}
	if now.Before(m.nextAt) && !(m.news && m.backoff == 0) {
		return nil, m.wakeAt()
	}
	m.inFlight, m.news = true, false
	if !m.registered {
		return m.registration(), time.Time{}
	}
	return m.heartbeat(), time.Time{}
}

func (m *machine) wakeAt() time.Time {
	at := m.nextAt
	for _, d := range m.offline {
		if end := d.since.Add(m.opt.DirFailureTimeout); !d.told && end.Before(at) {
			at = end
		}
	}
	return at
}

func (m *machine) checkDeadlines(now time.Time) {
	if m.epoch == noEpoch && !now.Before(m.giveUp) {
		m.failure = fmt.Errorf("broker %d could not register within initial.broker.registration.timeout.ms (%v), last because of %v: %w", m.opt.BrokerID, m.opt.InitialTimeout, m.lastErr, kerr.RequestTimedOut)
	}
	for id, d := range m.offline {
		if !d.told && !now.Before(d.since.Add(m.opt.DirFailureTimeout)) {
			m.failure = fmt.Errorf("the controller did not acknowledge the failure of log directory %s within log.dir.failure.timeout.ms (%v): %w", id, m.opt.DirFailureTimeout, kerr.KafkaStorageError)
		}
	}
}

func (m *machine) registration() *kmsg.BrokerRegistrationRequest {
	o := m.opt
	rq := kmsg.NewPtrBrokerRegistrationRequest()
	rq.BrokerID, rq.ClusterID, rq.IncarnationID, rq.Rack = o.BrokerID, o.ClusterID, o.Incarnation, o.Rack
	rq.PreviousBrokerEpoch = o.PreviousEpoch
	if m.epoch != noEpoch {
		rq.PreviousBrokerEpoch = m.epoch
	}
	for _, e := range o.Endpoints {
		l := kmsg.NewBrokerRegistrationRequestListener()
		l.Name, l.Host, l.Port, l.SecurityProtocol = e.Name, e.Host, e.Port, e.SecurityProtocol
		rq.Listeners = append(rq.Listeners, l)
	}
	for _, r := range o.Features {
		f := kmsg.NewBrokerRegistrationRequestFeature()
		f.Name, f.MinSupportedVersion, f.MaxSupportedVersion = r.Name, r.Min, r.Max
		rq.Features = append(rq.Features, f)
	}
	for _, d := range o.LogDirs {
		if _, off := m.offline[d]; !off {
			rq.LogDirs = append(rq.LogDirs, d)
		}
	}
	slices.SortFunc(rq.LogDirs, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
	rq.SetVersion(rq.MaxVersion())
	return rq
}

func (m *machine) heartbeat() *kmsg.BrokerHeartbeatRequest {
	rq := kmsg.NewPtrBrokerHeartbeatRequest()
	rq.BrokerID, rq.BrokerEpoch, rq.CurrentMetadataOffset = m.opt.BrokerID, m.epoch, m.offset
	rq.WantFence, rq.WantShutdown = !m.ready, m.stopping
	for id := range m.offline {
		rq.OfflineLogDirs = append(rq.OfflineLogDirs, id)
	}
	if m.cordoned != nil {
		rq.CordonedLogDirs = [][16]byte{}
		for _, id := range m.cordoned {
			rq.CordonedLogDirs = append(rq.CordonedLogDirs, id)
		}
	}
	rq.SetVersion(rq.MaxVersion())
	return rq
}

// answered takes the outcome of the request that next gave.
func (m *machine) answered(rq kmsg.Request, resp kmsg.Response, err error, now time.Time) {
	m.inFlight = false
	switch r := resp.(type) {
	case *kmsg.BrokerRegistrationResponse:
		if err == nil {
			err = kerr.ErrorForCode(r.ErrorCode)
		}
		if err == nil {
			m.registeredAs(r.BrokerEpoch, now)
			return
		}
	case *kmsg.BrokerHeartbeatResponse:
		if err == nil {
			err = kerr.ErrorForCode(r.ErrorCode)
		}
		if err == nil {
			m.heard(rq.(*kmsg.BrokerHeartbeatRequest), r, now)
			return
		}
	default:
		if err == nil {
			err = fmt.Errorf("the controller answered %T", resp)
		}
	}
	m.failed(rq, err, now)
}

// failed tries again, soon at first. A broker that is stopping and cannot reach a
// controller goes on trying: its caller has the deadline.
func (m *machine) failed(rq kmsg.Request, err error, now time.Time) {
	m.backoff = min(max(2*m.backoff, firstBackoff), m.opt.HeartbeatInterval)
	m.nextAt = now.Add(m.backoff)
	m.lastErr = err
	if m.opt.Events.Failed != nil {
		m.opt.Events.Failed(rq, err)
	}
}

func (m *machine) registeredAs(epoch int64, now time.Time) {
	m.registered, m.epoch, m.backoff = true, epoch, 0
	m.caughtUp, m.fenced = false, true
	m.nextAt = now // the first heartbeat goes at once
}

func (m *machine) heard(rq *kmsg.BrokerHeartbeatRequest, r *kmsg.BrokerHeartbeatResponse, now time.Time) {
	m.backoff = 0
	m.nextAt = now.Add(m.opt.HeartbeatInterval)
	m.fenced = r.IsFenced
	for _, id := range rq.OfflineLogDirs {
		d := m.offline[id]
		d.told = true
		m.offline[id] = d
	}
	if r.IsCaughtUp {
		m.caughtUp = true
	}
	switch {
	case r.ShouldShutdown && m.stopping:
		m.state = ShuttingDown
	case m.stopping && rq.WantShutdown:
		// The others need a moment to learn of it; look again soon, then less often.
		m.patience = min(max(2*m.patience, firstBackoff), m.opt.HeartbeatInterval)
		m.nextAt = now.Add(m.patience)
	case m.state == Starting && m.caughtUp, m.state == Recovery:
		m.state = Recovery
		if !rq.WantFence && !r.IsFenced {
			m.state = Running
		}
	}
}

// reached notes that the broker's image includes the record at offset.
func (m *machine) reached(offset int64) (wake bool) {
	if offset <= m.offset {
		return false
	}
	m.offset = offset
	if m.registered && !m.caughtUp {
		m.news = true // a heartbeat may find the registration passed
	}
	return m.news
}

func (m *machine) setReady() {
	m.ready, m.news = true, true
}

// shutdown asks for leave. A broker that the controller cannot have unfenced just goes.
func (m *machine) shutdown() {
	switch {
	case m.state == PendingControlledShutdown || m.finished():
	case m.state == Running, m.registered && m.ready:
		m.state, m.stopping, m.news = PendingControlledShutdown, true, true
	default:
		m.state = ShuttingDown
	}
}

func (m *machine) dirFailed(id ids.UUID, now time.Time) {
	if _, ok := m.offline[id]; !ok {
		m.offline[id] = offlineDir{since: now}
		m.news = true
	}
}

func (m *machine) cordon(dirs []ids.UUID) {
	m.cordoned = append([]ids.UUID{}, dirs...)
	m.news = true
}

// unregistered is news that the registration with this epoch is gone: register again, as
// the same incarnation.
func (m *machine) unregistered(epoch int64) {
	if m.registered && m.epoch == epoch && !m.stopping {
		m.registered, m.news = false, true
	}
}
