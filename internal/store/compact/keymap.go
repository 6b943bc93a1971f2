package compact

import (
	"crypto/md5"
	"encoding/binary"
)

// slotBytes is what one key costs: 16 of MD5, 8 of offset. As in Apache Kafka, keys are
// known by their MD5 alone.
const slotBytes = 24

const loadFactor = 0.9

// keyMap maps keys to their newest offset in bounded memory. It grows by doubling.
type keyMap struct {
	max    int // slots it may grow to
	slots  []slot
	used   int
	latest int64 // everything up to this offset was taken in
}

type slot struct {
	hash   [md5.Size]byte
	offset int64 // 0 is free; otherwise offset+1
}

func newKeyMap(bytes int64) *keyMap {
	return &keyMap{max: int(max(bytes/slotBytes, 16)), latest: -1}
}

// put notes that key was last written at offset. It reports false, and does nothing, if
// the map is full.
func (m *keyMap) put(key []byte, offset int64) bool {
	if float64(m.used+1) > float64(len(m.slots))*loadFactor && !m.grow() {
		return false
	}
	s := m.find(md5.Sum(key))
	if s.offset == 0 {
		m.used++
		s.hash = md5.Sum(key)
	}
	s.offset = offset + 1
	return true
}

// get is the newest offset of key, or -1.
func (m *keyMap) get(key []byte) int64 {
	if len(m.slots) == 0 {
		return -1
	}
	return m.find(md5.Sum(key)).offset - 1
}

// find gives the key's slot, or the free one where it belongs.
func (m *keyMap) find(hash [md5.Size]byte) *slot {
	i := int(binary.BigEndian.Uint64(hash[:]) % uint64(len(m.slots)))
	for {
		s := &m.slots[i]
		if s.offset == 0 || s.hash == hash {
			return s
		}
		if i++; i == len(m.slots) {
			i = 0
		}
	}
}

func (m *keyMap) grow() bool {
	n := min(max(2*len(m.slots), 1024), m.max)
	if n <= len(m.slots) {
		return false
	}
	old := m.slots
	m.slots = make([]slot, n)
	for i := range old {
		if old[i].offset != 0 {
			*m.find(old[i].hash) = old[i]
		}
	}
	return true
}
