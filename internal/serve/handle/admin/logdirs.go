package admin

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/serve/api"
)

// Dir is one log directory; a TP that is being moved to it is among Futures.
type Dir struct {
	Path        string
	Err         error // why it is offline
	Total, Free int64 // bytes, -1 unknown
	Cordoned    bool
	Replicas    []DirReplica
}

// DirReplica is a replica in a directory. Lag is in records; -1 unknown.
type DirReplica struct {
	TP        ids.TopicPartition
	Size, Lag int64
	Future    bool
}

// Dirs shows and moves replicas between this broker's log directories.
type Dirs interface {
	List() []Dir
	// Move starts moving a replica to the directory of this path.
	Move(tp ids.TopicPartition, path string) error
}

// describeLogDirs serves DescribeLogDirs v1-v5 (KIP-113, KIP-827, KIP-1066). Spec:
// semantics.md 14.7.
func (a *Admin) describeLogDirs(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	wanted := func(tp ids.TopicPartition) bool {
		return req.Topics == nil || slices.ContainsFunc(req.Topics, func(t kmsg.DescribeLogDirsRequestTopic) bool {
			return t.Topic == tp.Topic && slices.Contains(t.Partitions, tp.Partition)
		})
	}
	for _, dir := range a.opts.Dirs.List() {
		out := kmsg.NewDescribeLogDirsResponseDir()
		out.Dir, out.TotalBytes, out.UsableBytes, out.IsCordoned = dir.Path, dir.Total, dir.Free, dir.Cordoned
		if dir.Err != nil {
			out.ErrorCode = kerr.KafkaStorageError.Code
			out.TotalBytes, out.UsableBytes = -1, -1
			resp.Dirs = append(resp.Dirs, out)
			continue
		}
		at := map[string]int{}
		for _, r := range dir.Replicas {
			if !wanted(r.TP) {
				continue
			}
			i, ok := at[r.TP.Topic]
			if !ok {
				i = len(out.Topics)
				at[r.TP.Topic] = i
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = r.TP.Topic
				out.Topics = append(out.Topics, t)
			}
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition, p.Size, p.OffsetLag, p.IsFuture = r.TP.Partition, r.Size, r.Lag, r.Future
			out.Topics[i].Partitions = append(out.Topics[i].Partitions, p)
		}
		resp.Dirs = append(resp.Dirs, out)
	}
	return api.Done(resp)
}

// longestFuture is the longest topic name whose future directory's name still fits the
// 255 bytes of a file name: "-PARTITION.32hex-future".
const longestFuture = 255 - len(".-future") - 32

// alterReplicaLogDirs serves AlterReplicaLogDirs v1-v2 (KIP-113).
func (a *Admin) alterReplicaLogDirs(_ api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.AlterReplicaLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.AlterReplicaLogDirsResponse)
	at := map[string]int{}
	for _, d := range req.Dirs {
		for _, t := range d.Topics {
			i, ok := at[t.Topic]
			if !ok {
				i = len(resp.Topics)
				at[t.Topic] = i
				o := kmsg.NewAlterReplicaLogDirsResponseTopic()
				o.Topic = t.Topic
				resp.Topics = append(resp.Topics, o)
			}
			for _, p := range t.Partitions {
				o := kmsg.NewAlterReplicaLogDirsResponseTopicPartition()
				o.Partition = p
				tp := ids.TopicPartition{Topic: t.Topic, Partition: p}
				err := error(nil)
				if len(tp.String()) > longestFuture {
					err = fmt.Errorf("the name %s is too long for a directory on the move: %w", tp, kerr.InvalidTopicException)
				} else {
					err = a.opts.Dirs.Move(tp, d.Dir)
				}
				o.ErrorCode = api.Code(err)
				resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, o)
			}
		}
	}
	return api.Done(resp)
}
