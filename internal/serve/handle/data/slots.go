package data

import (
	"sync"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/image"
	"runnel/internal/repl/partition"
)

// slot is one partition of a fetch: what the client asked, what it was last told, and
// the replica that answers.
type slot struct {
	tag     int32 // index in slots.all
	topic   string
	topicID ids.UUID
	index   int32

	offset      int64
	maxBytes    int32
	epoch       int32 // CurrentLeaderEpoch
	lastFetched int32

	replica *partition.Partition // nil while unresolved
	err     error                // why it is unresolved
	gone    bool                 // forgotten; the tag is not used again

	sentHW, sentStart int64 // as last sent in this session; -1 makes the next answer name it
	res               partition.Fetched
	visited           bool
}

// slots is the set of partitions that one fetch, or one fetch session, looks at. Appends
// mark slots from any goroutine; everything else belongs to the request that uses it.
type slots struct {
	all   []*slot
	byKey map[slotKey]*slot
	byID  bool // named by topic id (v13+)
	flag  chan struct{}
	live  int
	watch bool // changes are being watched

	mu struct {
		sync.Mutex
		dirty []int32 // tags to visit, in the order of marking
		in    []bool  // by tag: is in dirty
	}
}

type slotKey struct {
	topic   string
	topicID ids.UUID
	index   int32
}

func newSlots(byID bool, n int) *slots {
	return &slots{byID: byID, byKey: make(map[slotKey]*slot, n), flag: make(chan struct{}, 1)}
}

func (s *slots) key(topic string, id ids.UUID, index int32) slotKey {
	if s.byID {
		return slotKey{topicID: id, index: index}
	}
	return slotKey{topic: topic, index: index}
}

// put adds a partition or takes its new parameters, and marks it. A partition listed
// twice: the last wins.
func (s *slots) put(topic string, id ids.UUID, index int32) *slot {
	k := s.key(topic, id, index)
	sl := s.byKey[k]
	if sl == nil {
		sl = &slot{tag: int32(len(s.all)), topic: topic, topicID: id, index: index, sentHW: -1, sentStart: -1}
		s.all = append(s.all, sl)
		s.byKey[k] = sl
		s.live++
		s.mu.Lock()
		s.mu.in = append(s.mu.in, false)
		s.mu.Unlock()
	}
	s.mark(sl.tag)
	return sl
}

// forget drops a partition.
func (s *slots) forget(topic string, id ids.UUID, index int32) {
	k := s.key(topic, id, index)
	sl := s.byKey[k]
	if sl == nil {
		return
	}
	delete(s.byKey, k)
	s.unwatch(sl)
	sl.gone = true
	s.all[sl.tag] = nil
	s.live--
}

// Changed is the partitions' news (partition.Watcher).
func (s *slots) Changed(tag int32) { s.mark(tag) }

func (s *slots) mark(tag int32) {
	s.mu.Lock()
	if !s.mu.in[tag] {
		s.mu.in[tag] = true
		s.mu.dirty = append(s.mu.dirty, tag)
	}
	s.mu.Unlock()
	select {
	case s.flag <- struct{}{}:
	default:
	}
}

// take empties the marks. What is marked from now on is news.
func (s *slots) take() []*slot {
	select {
	case <-s.flag:
	default:
	}
	s.mu.Lock()
	tags := s.mu.dirty
	s.mu.dirty = nil
	for _, t := range tags {
		s.mu.in[t] = false
	}
	s.mu.Unlock()
	out := make([]*slot, 0, len(tags))
	for _, t := range tags {
		if sl := s.all[t]; sl != nil {
			out = append(out, sl)
		}
	}
	return out
}

// resolve finds the replica of a slot, again where it was unknown, deleted or made anew.
func (s *slots) resolve(d *Data, img *image.Image, sl *slot) {
	if sl.replica != nil && sl.replica.State().Role != partition.Deleted {
		return
	}
	s.unwatch(sl)
	sl.replica, sl.err = nil, nil
	name := sl.topic
	if s.byID {
		t := img.TopicByID(sl.topicID)
		if t == nil {
			sl.err = errUnknownTopicID
			return
		}
		name = t.Name
		sl.topic = name
	}
	sl.replica, sl.err = d.find(img, name, sl.index)
	if sl.replica != nil && s.byID && sl.replica.TopicID() != sl.topicID {
		sl.replica, sl.err = nil, errInconsistentTopicID
	}
	if s.watch {
		s.watchOne(sl)
	}
}

// watchAll starts watching every slot's replica. Look at the slots once more afterwards.
func (s *slots) watchAll() {
	if s.watch {
		return
	}
	s.watch = true
	for _, sl := range s.all {
		if sl != nil {
			s.watchOne(sl)
		}
	}
}

func (s *slots) watchOne(sl *slot) {
	if sl.replica != nil {
		sl.replica.Watch(s, sl.tag)
	}
}

func (s *slots) unwatch(sl *slot) {
	if s.watch && sl.replica != nil {
		sl.replica.Unwatch(s, sl.tag)
	}
}

// close ends all watching.
func (s *slots) close() {
	for _, sl := range s.all {
		if sl != nil {
			s.unwatch(sl)
		}
	}
	s.watch = false
}
