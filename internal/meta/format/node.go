package format

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/meta/quorum"
)

// ForServer fills what a node's file decides. It leaves the cluster id, the clock and the
// random source to the caller. Without controller.quorum.voters a controller also needs
// Standalone, Voters, or nothing of both to join a quorum that exists.
func ForServer(s *config.Server) Options {
	o := Options{ClusterID: s.ClusterID, NodeID: s.NodeID, LogDirs: s.LogDirs, MetadataDir: s.MetadataDir, Controller: s.Controller}
	if len(s.Voters) == 0 {
		o.KRaftVersion = 1
	}
	return o
}

// OwnEndpoints are where this controller is reached: its controller listeners; a wildcard
// becomes localhost, which suits a node that is alone.
func OwnEndpoints(s *config.Server) ([]quorum.Endpoint, error) {
	var out []quorum.Endpoint
	for _, name := range s.ControllerListeners {
		i := slices.IndexFunc(s.Listeners, func(l config.Listener) bool { return l.Name == name })
		if i < 0 {
			continue
		}
		l := s.Listeners[i]
		host := l.Host
		if host == "" || host == "0.0.0.0" || host == "::" {
			host = "localhost"
		}
		out = append(out, quorum.Endpoint{Name: l.Name, Host: host, Port: uint16(l.Port)})
	}
	if len(out) == 0 {
		return nil, errors.New("controller.listener.names names no listener of this node")
	}
	return out, nil
}

// ParseInitialControllers reads ID@HOST:PORT:DIRECTORY_ID joined by commas, reached on the
// given listener.
func ParseInitialControllers(text, listener string) (quorum.VoterSet, error) {
	var out []quorum.Voter
	for _, item := range config.SplitList(text) {
		v, err := parseInitial(item, listener)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	if len(out) == 0 {
		return nil, errors.New("the list of initial controllers is empty")
	}
	return quorum.NewVoterSet(out...)
}

func parseInitial(item, listener string) (quorum.Voter, error) {
	bad := fmt.Errorf("%q is not ID@HOST:PORT:DIRECTORY_ID", item)
	id, rest, ok := strings.Cut(item, "@")
	colon := strings.LastIndexByte(rest, ':')
	n, err := strconv.ParseInt(id, 10, 32)
	if !ok || err != nil || n < 0 || colon < 1 {
		return quorum.Voter{}, bad
	}
	dir, err := ids.ParseUUID(rest[colon+1:])
	if err != nil || dir.Reserved() {
		return quorum.Voter{}, fmt.Errorf("%q: the directory id is not one: want 22 characters as `runnel format --random-id` prints", item)
	}
	host, port, err := config.SplitHostPort(rest[:colon])
	if err != nil || port < 1 || port > 65535 {
		return quorum.Voter{}, bad
	}
	return quorum.Voter{VoterID: int32(n), VoterDirectoryID: dir, MaxSupportedVersion: 1,
		Endpoints: []quorum.Endpoint{{Name: listener, Host: host, Port: uint16(port)}}}, nil
}
