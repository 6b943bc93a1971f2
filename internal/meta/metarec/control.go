package metarec

import (
	"encoding/binary"
	"fmt"

	"runnel/internal/kit/ids"
)

// Control is the body of a control record of the metadata log.
type Control interface {
	// ControlType is the type in the record's key.
	ControlType() int16
	codeControl(c *coder)
}

// Types of control records.
const (
	TypeLeaderChange   = int16(2)
	TypeSnapshotHeader = int16(3)
	TypeSnapshotFooter = int16(4)
	TypeKRaftVersion   = int16(5)
	TypeKRaftVoters    = int16(6)
)

// LeaderChange is what a leader appends first in its epoch. The directory ids are only
// in version 1, which Kafka reads and does not write.
type LeaderChange struct {
	Version        int16
	LeaderID       int32
	Voters         []ChangeVoter
	GrantingVoters []ChangeVoter
}

// ChangeVoter is a voter named by LeaderChange.
type ChangeVoter struct {
	VoterID          int32
	VoterDirectoryID ids.UUID
}

// SnapshotHeader opens a snapshot.
type SnapshotHeader struct {
	Version                   int16
	LastContainedLogTimestamp int64
}

// SnapshotFooter closes a snapshot; one without it is incomplete.
type SnapshotFooter struct{ Version int16 }

// KRaftVersion finalizes kraft.version.
type KRaftVersion struct {
	Version      int16
	KRaftVersion int16
}

// KRaftVoters states the voter set.
type KRaftVoters struct {
	Version int16
	Voters  []Voter
}

// Voter is one member of the voter set.
type Voter struct {
	VoterID             int32
	VoterDirectoryID    ids.UUID
	Endpoints           []VoterEndpoint
	MinSupportedVersion int16 // range of kraft.version
	MaxSupportedVersion int16
}

// VoterEndpoint is a controller listener of a voter.
type VoterEndpoint struct {
	Name string
	Host string
	Port uint16
}

func (*LeaderChange) ControlType() int16   { return TypeLeaderChange }
func (*SnapshotHeader) ControlType() int16 { return TypeSnapshotHeader }
func (*SnapshotFooter) ControlType() int16 { return TypeSnapshotFooter }
func (*KRaftVersion) ControlType() int16   { return TypeKRaftVersion }
func (*KRaftVoters) ControlType() int16    { return TypeKRaftVoters }

func (m *LeaderChange) codeControl(c *coder) {
	c.controlVersion(&m.Version, 1)
	c.int32(&m.LeaderID)
	array(c, &m.Voters, false, (*coder).changeVoter)
	array(c, &m.GrantingVoters, false, (*coder).changeVoter)
	c.noTags()
}

func (c *coder) changeVoter(v *ChangeVoter) {
	c.int32(&v.VoterID)
	if c.version >= 1 {
		c.uuid(&v.VoterDirectoryID)
	}
	c.noTags()
}

func (m *SnapshotHeader) codeControl(c *coder) {
	c.controlVersion(&m.Version, 0)
	c.int64(&m.LastContainedLogTimestamp)
	c.noTags()
}

func (m *SnapshotFooter) codeControl(c *coder) {
	c.controlVersion(&m.Version, 0)
	c.noTags()
}

func (m *KRaftVersion) codeControl(c *coder) {
	c.controlVersion(&m.Version, 0)
	c.int16(&m.KRaftVersion)
	c.noTags()
}

func (m *KRaftVoters) codeControl(c *coder) {
	c.controlVersion(&m.Version, 0)
	array(c, &m.Voters, false, (*coder).voter)
	c.noTags()
}

func (c *coder) voter(v *Voter) {
	c.int32(&v.VoterID)
	c.uuid(&v.VoterDirectoryID)
	array(c, &v.Endpoints, false, (*coder).voterEndpoint)
	c.int16(&v.MinSupportedVersion)
	c.int16(&v.MaxSupportedVersion)
	c.noTags() // of KRaftVersionFeature
	c.noTags() // of the voter
}

func (c *coder) voterEndpoint(v *VoterEndpoint) {
	c.string(&v.Name)
	c.string(&v.Host)
	c.uint16(&v.Port)
	c.noTags()
}

// controlVersion codes the version that leads each control value and selects its fields.
func (c *coder) controlVersion(v *int16, max int16) {
	c.int16(v)
	if c.reading && c.err == nil && (*v < 0 || *v > max) {
		c.fail(fmt.Errorf("%w %d, supported 0 to %d", ErrVersion, *v, max))
	}
	c.version = *v
}

// EncodeControl gives key and value of a control record.
func EncodeControl(m Control) (key, value []byte) {
	key = binary.BigEndian.AppendUint32(nil, uint32(uint16(m.ControlType())))
	c := coder{b: make([]byte, 0, 64)}
	m.codeControl(&c)
	return key, c.b
}

// DecodeControl reads a control record of the metadata log.
func DecodeControl(key, value []byte) (Control, error) {
	if len(key) < 4 {
		return nil, fmt.Errorf("%w: control key of %d bytes, want 4", ErrMalformed, len(key))
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return nil, fmt.Errorf("%w: control key version %d", ErrMalformed, v)
	}
	var m Control
	switch typ := int16(binary.BigEndian.Uint16(key[2:])); typ {
	case TypeLeaderChange:
		m = &LeaderChange{}
	case TypeSnapshotHeader:
		m = &SnapshotHeader{}
	case TypeSnapshotFooter:
		m = &SnapshotFooter{}
	case TypeKRaftVersion:
		m = &KRaftVersion{}
	case TypeKRaftVoters:
		m = &KRaftVoters{}
	default:
		return nil, fmt.Errorf("%w: control type %d", ErrUnknownType, typ)
	}
	c := coder{b: value, reading: true}
	m.codeControl(&c)
	if c.err == nil && len(c.b) != 0 {
		c.err = fmt.Errorf("%d bytes after the body", len(c.b))
	}
	if c.err != nil {
		return nil, fmt.Errorf("%w: control type %d: %w", ErrMalformed, m.ControlType(), c.err)
	}
	return m, nil
}
