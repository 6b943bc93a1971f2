package groups

import (
	"runnel/internal/coord/group"
	"runnel/internal/meta/image"
	"runnel/internal/serve/api"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupOps are the operations on a group that a caller may have (semantics.md 15.1).
const groupOps = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// Groups serves the group APIs of a broker listener.
type Groups struct {
	service *group.Service
	image   func() *image.Image
}

// New makes the handlers.
func New(s *group.Service, img func() *image.Image) *Groups { return &Groups{s, img} }

// Register adds the APIs and the versions of Kafka 4.4.
func (g *Groups) Register(r *api.Registry) {
	add := func(key kmsg.Key, lowest, highest int16, h api.Handler) {
		r.Add(api.API{Key: int16(key), Min: lowest, Max: highest, Handle: h})
	}
	add(kmsg.OffsetCommit, 2, 10, g.offsetCommit)
	add(kmsg.OffsetFetch, 1, 10, g.offsetFetch)
	add(kmsg.JoinGroup, 0, 9, g.joinGroup)
	add(kmsg.Heartbeat, 0, 4, g.heartbeat)
	add(kmsg.LeaveGroup, 0, 5, g.leaveGroup)
	add(kmsg.SyncGroup, 0, 5, g.syncGroup)
	add(kmsg.DescribeGroups, 0, 6, g.describeGroups)
	add(kmsg.ListGroups, 0, 5, g.listGroups)
	add(kmsg.DeleteGroups, 0, 3, g.deleteGroups)
	add(kmsg.OffsetDelete, 0, 0, g.offsetDelete)
}

// joinGroup serves JoinGroup v0-v9 (KIP-345 static members, KIP-394 member ids, KIP-559).
func (g *Groups) joinGroup(ctx api.Context, rq *api.Request) api.Reply {
	from := group.Caller{ClientID: rq.ClientID, ClientHost: "/" + rq.Host}
	return api.Done(g.service.JoinGroup(ctx, from, rq.Body.(*kmsg.JoinGroupRequest)))
}

// syncGroup serves SyncGroup v0-v5.
func (g *Groups) syncGroup(ctx api.Context, rq *api.Request) api.Reply {
	return api.Done(g.service.SyncGroup(ctx, rq.Body.(*kmsg.SyncGroupRequest)))
}

// heartbeat serves Heartbeat v0-v4.
func (g *Groups) heartbeat(ctx api.Context, rq *api.Request) api.Reply {
	return api.Done(g.service.Heartbeat(ctx, rq.Body.(*kmsg.HeartbeatRequest)))
}

// leaveGroup serves LeaveGroup v0-v5 (KIP-345, KIP-800).
func (g *Groups) leaveGroup(ctx api.Context, rq *api.Request) api.Reply {
	return api.Done(g.service.LeaveGroup(ctx, rq.Body.(*kmsg.LeaveGroupRequest)))
}

// describeGroups serves DescribeGroups v0-v6 (KIP-430 operations, KIP-1043).
func (g *Groups) describeGroups(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DescribeGroupsRequest)
	resp := g.service.DescribeGroups(ctx, req)
	for i := range resp.Groups {
		resp.Groups[i].AuthorizedOperations = -2147483648
		if req.IncludeAuthorizedOperations && resp.Groups[i].ErrorCode == 0 {
			resp.Groups[i].AuthorizedOperations = groupOps
		}
	}
	return api.Done(resp)
}

// listGroups serves ListGroups v0-v5 (KIP-518 states, KIP-848 types).
func (g *Groups) listGroups(ctx api.Context, rq *api.Request) api.Reply {
	return api.Done(g.service.ListGroups(ctx, rq.Body.(*kmsg.ListGroupsRequest)))
}

// deleteGroups serves DeleteGroups v0-v3.
func (g *Groups) deleteGroups(ctx api.Context, rq *api.Request) api.Reply {
	return api.Done(g.service.DeleteGroups(ctx, rq.Body.(*kmsg.DeleteGroupsRequest)))
}
