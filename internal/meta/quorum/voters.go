package quorum

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/metarec"
)

// ReplicaKey names a replica of the metadata log: a node, and the directory it keeps the
// log in. A zero Dir is absent.
type ReplicaKey struct {
	ID  int32
	Dir ids.UUID
}

var nobody = ReplicaKey{ID: -1}

// Voter and Endpoint are what the KRaftVoters record holds.
type (
	Voter    = metarec.Voter
	Endpoint = metarec.VoterEndpoint
)

// VoterSet is ordered by id and never changed once made.
type VoterSet []Voter

// NewVoterSet orders the voters; two with one id are refused.
func NewVoterSet(voters ...Voter) (VoterSet, error) {
	s := slices.Clone(voters)
	slices.SortFunc(s, func(a, b Voter) int { return cmp.Compare(a.VoterID, b.VoterID) })
	for i := 1; i < len(s); i++ {
		if s[i].VoterID == s[i-1].VoterID {
			return nil, fmt.Errorf("voter %d is listed twice", s[i].VoterID)
		}
	}
	return s, nil
}

// ParseVoters reads controller.quorum.voters, id@host:port joined by commas; the voters
// are reached on the given listener.
func ParseVoters(value, listener string) (VoterSet, error) {
	var voters []Voter
	for part := range strings.SplitSeq(value, ",") {
		part = strings.TrimSpace(part)
		if part == "" {
			continue
		}
		id, address, ok := strings.Cut(part, "@")
		colon := strings.LastIndexByte(address, ':')
		n, err := strconv.ParseInt(id, 10, 32)
		if !ok || err != nil || n < 0 || colon < 1 {
			return nil, fmt.Errorf("controller.quorum.voters: %q is not id@host:port", part)
		}
		port, err := strconv.ParseUint(address[colon+1:], 10, 16)
		if err != nil {
			return nil, fmt.Errorf("controller.quorum.voters: %q is not id@host:port", part)
		}
		host := strings.TrimSuffix(strings.TrimPrefix(address[:colon], "["), "]")
		voters = append(voters, Voter{VoterID: int32(n), Endpoints: []Endpoint{{Name: listener, Host: host, Port: uint16(port)}}})
	}
	set, err := NewVoterSet(voters...)
	if err != nil {
		return nil, fmt.Errorf("controller.quorum.voters: %w", err)
	}
	return set, nil
}

func (s VoterSet) find(id int32) *Voter {
	i, ok := slices.BinarySearchFunc(s, id, func(v Voter, id int32) int { return cmp.Compare(v.VoterID, id) })
	if !ok {
		return nil
	}
	return &s[i]
}

// has applies Kafka's match rule: a voter without a directory id matches any.
func (s VoterSet) has(k ReplicaKey) bool {
	v := s.find(k.ID)
	return v != nil && (v.VoterDirectoryID.IsZero() || v.VoterDirectoryID == k.Dir)
}

func (s VoterSet) onlyIs(k ReplicaKey) bool { return len(s) == 1 && s.has(k) }

func (s VoterSet) majority() int { return len(s)/2 + 1 }

func endpointOn(es []Endpoint, listener string) (Endpoint, bool) {
	for _, e := range es {
		if strings.EqualFold(e.Name, listener) {
			return e, true
		}
	}
	return Endpoint{}, false
}

// history is the voter set and kraft.version by log offset, so that truncation can undo
// and a snapshot can state what held at its end.
type history struct {
	static   VoterSet
	sets     []setAt
	versions []versionAt
}

type setAt struct {
	offset int64
	set    VoterSet
}

type versionAt struct {
	offset  int64
	version int16
}

const bootstrapOffset = -1 // where the control records of checkpoint 0-0 count as being

func (h *history) add(offset int64, c metarec.Control) error {
	switch c := c.(type) {
	case *metarec.KRaftVersion:
		h.versions = append(h.versions, versionAt{offset, c.KRaftVersion})
	case *metarec.KRaftVoters:
		set, err := NewVoterSet(c.Voters...)
		if err != nil {
			return fmt.Errorf("KRaftVoters record at offset %d: %w", offset, err)
		}
		h.sets = append(h.sets, setAt{offset, set})
	}
	return nil
}

func (h *history) truncate(end int64) {
	h.sets = slices.DeleteFunc(h.sets, func(s setAt) bool { return s.offset >= end })
	h.versions = slices.DeleteFunc(h.versions, func(v versionAt) bool { return v.offset >= end })
}

const maxOffset = int64(1<<63 - 1)

func (h *history) voters() VoterSet { return h.votersAt(maxOffset) }
func (h *history) version() int16   { return h.versionUpTo(maxOffset) }
func (h *history) fromBootstrap() bool {
	return len(h.sets) > 0 && h.sets[len(h.sets)-1].offset == bootstrapOffset
}
func (h *history) dropAll() { h.sets, h.versions = nil, nil }
func (h *history) votersAt(o int64) VoterSet {
	for _, s := range slices.Backward(h.sets) {
		if s.offset <= o {
			return s.set
		}
	}
	return h.static
}

func (h *history) versionUpTo(o int64) int16 {
	for _, v := range slices.Backward(h.versions) {
		if v.offset <= o {
			return v.version
		}
	}
	return 0
}
