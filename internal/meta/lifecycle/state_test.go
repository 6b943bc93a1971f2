package lifecycle

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
)

var start = time.UnixMilli(1_000_000)

func testMachine() *machine {
	opt := Options{BrokerID: 1, ClusterID: "c", LogDirs: []ids.UUID{{2}, {1}}, PreviousEpoch: 7, Features: feature.Supported()}.withDefaults()
	return newMachine(&opt, start)
}

func (m *machine) mustSend(t *testing.T, now time.Time) kmsg.Request {
	t.Helper()
	rq, at := m.next(now)
	if rq == nil {
		t.Fatalf("nothing to send, next at %v", at)
	}
	return rq
}

func (m *machine) beat(t *testing.T, now time.Time, r kmsg.BrokerHeartbeatResponse) *kmsg.BrokerHeartbeatRequest {
	t.Helper()
	rq := m.mustSend(t, now).(*kmsg.BrokerHeartbeatRequest)
	m.answered(rq, &r, nil, now)
	return rq
}

func running(t *testing.T) *machine {
	t.Helper()
	m := testMachine()
	m.answered(m.mustSend(t, start), &kmsg.BrokerRegistrationResponse{BrokerEpoch: 5}, nil, start)
	m.setReady()
	m.reached(5)
	m.beat(t, start, kmsg.BrokerHeartbeatResponse{IsCaughtUp: true})
	if m.state != Running {
		t.Fatalf("state %v", m.state)
	}
	return m
}

// metadata-records.md §6: STARTING, RECOVERY, RUNNING; and all of it without waiting.
func TestStartTakesNoTime(t *testing.T) {
	m := testMachine()
	reg := m.mustSend(t, start).(*kmsg.BrokerRegistrationRequest)
	if reg.PreviousBrokerEpoch != 7 || len(reg.LogDirs) != 2 || reg.LogDirs[0] != [16]byte{1} || len(reg.Features) != 7 || reg.Version < 4 {
		t.Errorf("%+v", reg)
	}
	if rq, _ := m.next(start); rq != nil {
		t.Error("two requests in flight")
	}
	m.answered(reg, &kmsg.BrokerRegistrationResponse{BrokerEpoch: 9}, nil, start)
	hb := m.beat(t, start, kmsg.BrokerHeartbeatResponse{IsFenced: true})
	if !hb.WantFence || hb.WantShutdown || hb.BrokerEpoch != 9 || m.state != Starting {
		t.Errorf("%+v %v", hb, m.state)
	}
	if rq, at := m.next(start); rq != nil || !at.Equal(start.Add(2*time.Second)) {
		t.Errorf("%v %v", rq, at)
	}
	m.reached(9)
	if hb := m.beat(t, start, kmsg.BrokerHeartbeatResponse{IsFenced: true, IsCaughtUp: true}); hb.CurrentMetadataOffset != 9 || m.state != Recovery {
		t.Errorf("%+v %v", hb, m.state)
	}
	m.reached(10)
	if rq, _ := m.next(start); rq != nil {
		t.Error("once caught up, offsets are not news")
	}
	m.setReady()
	if hb := m.beat(t, start, kmsg.BrokerHeartbeatResponse{IsCaughtUp: true}); hb.WantFence || m.state != Running || m.fenced {
		t.Errorf("%+v %v", hb, m.state)
	}
}

func TestRegistrationIsTriedAgainUntilTheTimeout(t *testing.T) {
	m := testMachine()
	now, tries := start, 0
	for m.failure == nil {
		rq, at := m.next(now)
		if rq != nil {
			tries++
			m.answered(rq, &kmsg.BrokerRegistrationResponse{ErrorCode: kerr.DuplicateBrokerRegistration.Code}, nil, now)
			continue
		}
		if m.failure == nil {
			now = at
		}
	}
	if tries < 30 || tries > 50 || now.Sub(start) < time.Minute || now.Sub(start) > 62*time.Second || !errors.Is(m.failure, kerr.RequestTimedOut) {
		t.Errorf("%d tries in %v: %v", tries, now.Sub(start), m.failure)
	}
}

// Failures do not make it spin, even with news.
func TestBackoff(t *testing.T) {
	m := running(t)
	now := start.Add(2 * time.Second)
	m.answered(m.mustSend(t, now), nil, errors.New("refused"), now)
	m.cordon(nil)
	if rq, at := m.next(now); rq != nil || !at.Equal(now.Add(firstBackoff)) {
		t.Errorf("%v %v", rq, at)
	}
	now = now.Add(firstBackoff)
	m.answered(m.mustSend(t, now), nil, errors.New("refused"), now)
	if _, at := m.next(now); !at.Equal(now.Add(2 * firstBackoff)) {
		t.Errorf("at %v", at)
	}
}

func TestControlledShutdown(t *testing.T) {
	m := running(t)
	m.shutdown()
	if hb := m.beat(t, start, kmsg.BrokerHeartbeatResponse{}); !hb.WantShutdown || m.state != PendingControlledShutdown {
		t.Errorf("%+v %v", hb, m.state)
	}
	if _, at := m.next(start); !at.Equal(start.Add(firstBackoff)) {
		t.Errorf("looks again at %v", at)
	}
	now := start.Add(firstBackoff)
	m.beat(t, now, kmsg.BrokerHeartbeatResponse{ShouldShutdown: true, IsFenced: true})
	if m.state != ShuttingDown || !m.finished() {
		t.Errorf("%v", m.state)
	}
	fresh := testMachine()
	fresh.shutdown()
	if fresh.state != ShuttingDown {
		t.Errorf("before the registration: %v", fresh.state)
	}
}

// An answer to a heartbeat from before the wish to stop does not count as leave.
func TestShutdownWhileHeartbeatInFlight(t *testing.T) {
	m := running(t)
	now := start.Add(2 * time.Second)
	rq := m.mustSend(t, now)
	m.shutdown()
	m.answered(rq, &kmsg.BrokerHeartbeatResponse{}, nil, now)
	if hb := m.beat(t, now, kmsg.BrokerHeartbeatResponse{ShouldShutdown: true}); !hb.WantShutdown || m.state != ShuttingDown {
		t.Errorf("%+v %v", hb, m.state)
	}
}

func TestOfflineDirectories(t *testing.T) {
	m := running(t)
	m.dirFailed(ids.UUID{2}, start)
	hb := m.beat(t, start, kmsg.BrokerHeartbeatResponse{})
	if !slices.Contains(hb.OfflineLogDirs, [16]byte{2}) {
		t.Errorf("%+v", hb)
	}
	if m.checkDeadlines(start.Add(time.Hour)); m.failure != nil {
		t.Errorf("told, and yet: %v", m.failure)
	}
	m.dirFailed(ids.UUID{1}, start)
	if m.checkDeadlines(start.Add(30 * time.Second)); !errors.Is(m.failure, kerr.KafkaStorageError) {
		t.Errorf("not told: %v", m.failure)
	}
}

func TestCordonedDirectoriesAreNullUntilSaid(t *testing.T) {
	m := running(t)
	if hb := m.heartbeat(); hb.CordonedLogDirs != nil {
		t.Errorf("%+v", hb)
	}
	m.cordon(nil)
	if hb := m.heartbeat(); hb.CordonedLogDirs == nil || len(hb.CordonedLogDirs) != 0 {
		t.Errorf("%+v", hb)
	}
}

// An admin unregistered the broker: it registers again as the same incarnation.
func TestUnregistered(t *testing.T) {
	m := running(t)
	m.unregistered(4)
	if rq, _ := m.next(start); rq != nil {
		t.Errorf("news of another epoch: %T", rq)
	}
	m.unregistered(5)
	rq, ok := m.mustSend(t, start).(*kmsg.BrokerRegistrationRequest)
	if !ok {
		t.Fatal("no registration")
	}
	m.answered(rq, &kmsg.BrokerRegistrationResponse{BrokerEpoch: 20}, nil, start)
	if hb := m.beat(t, start, kmsg.BrokerHeartbeatResponse{IsFenced: true}); hb.BrokerEpoch != 20 || hb.WantFence {
		t.Errorf("%+v", hb)
	}
	if m.state != Running {
		t.Errorf("%v", m.state)
	}
}
