package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/store/checkpoint"
)

const stateFile = "quorum-state"

// stored is what the quorum-state file says.
type stored struct {
	leader int32
	epoch  int32
	voted  ReplicaKey
}

var never = stored{leader: -1, voted: nobody}

type voterID struct {
	VoterID int32 `json:"voterId"`
}

type stateV0 struct {
	ClusterID     string    `json:"clusterId"`
	LeaderID      int32     `json:"leaderId"`
	LeaderEpoch   int32     `json:"leaderEpoch"`
	VotedID       int32     `json:"votedId"`
	AppliedOffset int64     `json:"appliedOffset"`
	CurrentVoters []voterID `json:"currentVoters"`
	DataVersion   int16     `json:"data_version"`
}

type stateV1 struct {
	LeaderID         int32  `json:"leaderId"`
	LeaderEpoch      int32  `json:"leaderEpoch"`
	VotedID          int32  `json:"votedId"`
	VotedDirectoryID string `json:"votedDirectoryId"`
	DataVersion      int16  `json:"data_version"`
}

// readState gives never for a node that has no file.
func readState(f vfs.FS, dir string) (stored, error) {
	b, err := vfs.ReadFile(f, path.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return never, nil
	}
	if err != nil {
		return never, err
	}
	return parseState(b)
}

func parseState(b []byte) (stored, error) {
	bad := func(err error) (stored, error) {
		return never, fmt.Errorf("%s: %w", stateFile, err)
	}
	var all struct {
		LeaderID         *int32 `json:"leaderId"`
		LeaderEpoch      *int32 `json:"leaderEpoch"`
		VotedID          *int32 `json:"votedId"`
		VotedDirectoryID string `json:"votedDirectoryId"`
		DataVersion      *int16 `json:"data_version"`
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return bad(err)
	}
	switch {
	case all.DataVersion == nil:
		return bad(errors.New("no data_version"))
	case *all.DataVersion < 0 || *all.DataVersion > 1:
		return bad(fmt.Errorf("data_version %d is not known", *all.DataVersion))
	case all.LeaderID == nil || all.LeaderEpoch == nil || all.VotedID == nil:
		return bad(errors.New("leaderId, leaderEpoch or votedId is missing"))
	case *all.LeaderEpoch < 0 || *all.LeaderID < -1 || *all.VotedID < -1:
		return bad(fmt.Errorf("leaderEpoch %d, leaderId %d or votedId %d is out of range", *all.LeaderEpoch, *all.LeaderID, *all.VotedID))
	}
	s := stored{leader: *all.LeaderID, epoch: *all.LeaderEpoch, voted: ReplicaKey{ID: *all.VotedID}}
	if all.VotedDirectoryID != "" {
		id, err := ids.ParseUUID(all.VotedDirectoryID)
		if err != nil {
			return bad(err)
		}
		s.voted.Dir = id
	}
	return s, nil
}

// writeState makes s durable in the file version that kraft.version asks for.
func writeState(f vfs.FS, dir string, s stored, kraftVersion int16, voters VoterSet) error {
	b, err := json.Marshal(formatState(s, kraftVersion, voters))
	if err != nil {
		return err
	}
	return checkpoint.Replace(f, path.Join(dir, stateFile), b)
}

func formatState(s stored, kraftVersion int16, voters VoterSet) any {
	if kraftVersion >= 1 {
		return stateV1{s.leader, s.epoch, s.voted.ID, s.voted.Dir.String(), 1}
	}
	current := make([]voterID, len(voters))
	for i, v := range voters {
		current[i].VoterID = v.VoterID
	}
	return stateV0{LeaderID: s.leader, LeaderEpoch: s.epoch, VotedID: s.voted.ID, CurrentVoters: current}
}
