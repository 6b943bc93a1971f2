package data

import (
	"container/list"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	errUnknownTopicID      = kerr.UnknownTopicID
	errInconsistentTopicID = kerr.InconsistentTopicID
)

// evictAfter is the idle time after which any session may make room for another.
const evictAfter = 2 * time.Minute

// session is a fetch session (KIP-227): the partitions a client follows, so that its
// requests name only changes and our answers only news.
type session struct {
	id      int32
	epoch   int32 // of the next request
	set     *slots
	replica bool // a follower's: outranks consumers'
	created time.Time
	used    time.Time
	busy    bool // a request is using it
	at      *list.Element
}

// sessions is the bounded cache.
type sessions struct {
	slots  int
	random func() uint64
	mu     struct {
		sync.Mutex
		byID map[int32]*session
		lru  *list.List // front is the most recently used
	}
}

func newSessions(n int, random func() uint64) *sessions {
	s := &sessions{slots: n, random: random}
	s.mu.byID = map[int32]*session{}
	s.mu.lru = list.New()
	return s
}

func (s *sessions) size() (sessions, partitions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.mu.byID {
		partitions += x.set.live
	}
	return len(s.mu.byID), partitions
}

// begin finds the session of an incremental request and claims it for its next epoch.
func (s *sessions) begin(req *kmsg.FetchRequest, now time.Time) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.mu.byID[req.SessionID]
	if x == nil {
		return nil, kerr.FetchSessionIDNotFound
	}
	if x.set.byID != (req.Version >= 13) {
		return nil, kerr.FetchSessionTopicIDError
	}
	if x.busy || req.SessionEpoch != x.epoch {
		return nil, kerr.InvalidFetchSessionEpoch
	}
	x.busy, x.used = true, now
	x.epoch = nextEpoch(x.epoch)
	s.mu.lru.MoveToFront(x.at)
	return x, nil
}

// nextEpoch wraps from the largest int32 to 1: 0 and -1 have meanings of their own.
func nextEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}

// end gives a claimed session back.
func (s *sessions) end(x *session) {
	s.mu.Lock()
	x.busy = false
	dropped := s.mu.byID[x.id] != x
	s.mu.Unlock()
	if dropped {
		x.set.close()
	}
}

// create makes a session around a full fetch's partitions, if there is room or someone
// has to make it. nil: the client goes on without.
func (s *sessions) create(set *slots, replica bool, now time.Time) *session {
	if s.slots <= 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.byID) >= s.slots && !s.evictLocked(set.live, replica, now) {
		return nil
	}
	id := int32(s.random()>>33) | 1
	for s.mu.byID[id] != nil || id <= 0 {
		id = int32(s.random() >> 33)
	}
	x := &session{id: id, epoch: 1, set: set, replica: replica, created: now, used: now, busy: true}
	x.at = s.mu.lru.PushFront(x)
	s.mu.byID[id] = x
	return x
}

// evictLocked drops the least recently used session if it is idle long enough, else the
// smallest one that ranks below the new one: followers' sessions outrank consumers', and
// a consumer's young session is left alone by other consumers.
func (s *sessions) evictLocked(size int, replica bool, now time.Time) bool {
	oldest := s.mu.lru.Back().Value.(*session)
	if now.Sub(oldest.used) > evictAfter {
		s.dropLocked(oldest)
		return true
	}
	var victim *session
	for _, x := range s.mu.byID {
		if x.replica && !replica || !x.replica && !replica && now.Sub(x.created) <= evictAfter {
			continue
		}
		if victim == nil || ranksBelow(x, victim) {
			victim = x
		}
	}
	if victim == nil || victim.replica == replica && victim.set.live > size {
		return false
	}
	s.dropLocked(victim)
	return true
}

func ranksBelow(a, b *session) bool {
	if a.replica != b.replica {
		return b.replica
	}
	if a.set.live != b.set.live {
		return a.set.live < b.set.live
	}
	return a.id < b.id
}

// remove ends a session that its client closed or emptied.
func (s *sessions) remove(id int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if x := s.mu.byID[id]; x != nil {
		s.dropLocked(x)
	}
}

func (s *sessions) dropLocked(x *session) {
	delete(s.mu.byID, x.id)
	s.mu.lru.Remove(x.at)
	if !x.busy {
		x.set.close()
	}
}
