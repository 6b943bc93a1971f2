package quorum

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
)

type outcome struct {
	response kmsg.Response
	err      error
}

// answer is ready to leave once the loop has settled.
type answer struct {
	to chan<- outcome
	outcome
}

// parked is a Fetch at the log's end.
type parked struct {
	until  time.Time
	offset int64
	rq     *kmsg.FetchRequest
	at     listener
	first  *kmsg.FetchResponse // the answer computed at arrival, sent when time is up
	to     chan<- outcome
}

func (p *parked) giveUp(err error) { p.to <- outcome{err: err} }

type listener string

type listenerKey struct{}

// OnListener says on which listener a request came, so that the answer names the leader's
// address there.
func OnListener(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, listenerKey{}, listener(name))
}

// Handle answers Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot and
// DescribeQuorum. An error means that there is no answer: the quorum stops, or ctx ended.
func (q *Quorum) Handle(ctx context.Context, rq kmsg.Request) (kmsg.Response, error) {
	at, ok := ctx.Value(listenerKey{}).(listener)
	if !ok {
		at = listener(q.opt.Listener)
	}
	to := make(chan outcome, 1)
	if !q.post(func() { q.serve(rq, at, to) }) {
		return nil, errClosed
	}
	select {
	case o := <-to:
		return o.response, o.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-q.done:
		return nil, errClosed
	}
}

func (q *Quorum) finishAnswers() {
	for _, a := range q.peers.answers {
		if q.failed != nil {
			a.outcome = outcome{err: errClosed}
		}
		a.to <- a.outcome
	}
	q.peers.answers = nil
}

func (q *Quorum) serve(rq kmsg.Request, at listener, to chan<- outcome) {
	if q.failed != nil {
		to <- outcome{err: errClosed}
		return
	}
	now := q.opt.Now()
	q.m.tick(now)
	var resp kmsg.Response
	switch rq := rq.(type) {
	case *kmsg.VoteRequest:
		resp = q.handleVote(rq, at, now)
	case *kmsg.BeginQuorumEpochRequest:
		resp = q.handleBegin(rq, at, now)
	case *kmsg.EndQuorumEpochRequest:
		resp = q.handleEnd(rq, at, now)
	case *kmsg.FetchRequest:
		if resp = q.handleFetch(rq, at, to, now); resp == nil {
			return
		}
	case *kmsg.FetchSnapshotRequest:
		resp = q.handleFetchSnapshot(rq, at, now)
	case *kmsg.DescribeQuorumRequest:
		resp = q.handleDescribe(rq, now)
	default:
		to <- outcome{err: fmt.Errorf("request key %d is not the quorum's: %w", rq.Key(), kerr.UnsupportedVersion)}
		return
	}
	q.peers.answers = append(q.peers.answers, answer{to, outcome{response: resp}})
}

func (q *Quorum) foreign(clusterID *string) bool {
	return clusterID != nil && *clusterID != q.opt.ClusterID
}

// leaderAt is the known leader's address on a listener.
func (q *Quorum) leaderAt(at listener) (Endpoint, bool) {
	if q.m.leader < 0 {
		return Endpoint{}, false
	}
	if q.m.leader == q.self.ID {
		return endpointOn(q.opt.Endpoints, string(at))
	}
	return endpointOn(q.m.endpoints, string(at))
}

func (q *Quorum) handleVote(rq *kmsg.VoteRequest, at listener, now time.Time) kmsg.Response {
	resp := rq.ResponseKind().(*kmsg.VoteResponse)
	if q.foreign(rq.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(rq.Topics) != 1 || rq.Topics[0].Topic != ids.MetadataTopic || len(rq.Topics[0].Partitions) != 1 || rq.Topics[0].Partitions[0].Partition != 0 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := rq.Topics[0].Partitions[0]
	out := kmsg.NewVoteResponseTopicPartition()
	out.VoteGranted, out.ErrorCode = q.decideVote(rq.VoterID, p, now)
	out.LeaderID, out.LeaderEpoch = q.m.leader, q.m.epoch
	t := kmsg.NewVoteResponseTopic()
	t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.VoteResponseTopicPartition{out}
	resp.Topics = append(resp.Topics, t)
	if e, ok := q.leaderAt(at); ok {
		n := kmsg.NewVoteResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = q.m.leader, e.Host, e.Port
		resp.NodeEndpoints = append(resp.NodeEndpoints, n)
	}
	return resp
}

func (q *Quorum) decideVote(voterID int32, p kmsg.VoteRequestTopicPartition, now time.Time) (bool, int16) {
	m := &q.m
	if p.LastOffset < 0 || p.LastOffsetEpoch < 0 || p.LastOffsetEpoch > p.CandidateEpoch || !p.PreVote && p.LastOffsetEpoch == p.CandidateEpoch {
		return false, kerr.InvalidRequest.Code
	}
	if p.CandidateEpoch < m.epoch {
		return false, kerr.FencedLeaderEpoch.Code
	}
	if p.CandidateID < 0 {
		return false, kerr.InvalidRequest.Code
	}
	if p.CandidateEpoch > m.epoch {
		m.higher(p.CandidateEpoch, now)
	}
	if !q.isMe(voterID, p.VoterDirectoryID) {
		return false, kerr.InvalidVoterKey.Code
	}
	if p.CandidateEpoch != m.epoch { // a lone voter went on to stand for itself
		return false, kerr.FencedLeaderEpoch.Code
	}
	return m.vote(voteRequest{p.CandidateEpoch, ReplicaKey{p.CandidateID, p.CandidateDirectoryID}, logEnd{p.LastOffsetEpoch, p.LastOffset}, p.PreVote}, q.logEnd(), now), 0
}

func (q *Quorum) isMe(id int32, dir ids.UUID) bool {
	return id < 0 || id == q.self.ID && (dir.IsZero() || dir == q.self.Dir)
}

func (q *Quorum) handleBegin(rq *kmsg.BeginQuorumEpochRequest, at listener, now time.Time) kmsg.Response {
	resp := rq.ResponseKind().(*kmsg.BeginQuorumEpochResponse)
	if q.foreign(rq.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(rq.Topics) != 1 || rq.Topics[0].Topic != ids.MetadataTopic || len(rq.Topics[0].Partitions) != 1 || rq.Topics[0].Partitions[0].Partition != 0 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := rq.Topics[0].Partitions[0]
	var endpoints []Endpoint
	for _, e := range rq.LeaderEndpoints {
		endpoints = append(endpoints, Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	out := kmsg.NewBeginQuorumEpochResponseTopicPartition()
	out.ErrorCode = q.takeLeader(p.LeaderID, p.LeaderEpoch, endpoints, now)
	if out.ErrorCode == 0 && !q.isMe(rq.VoterID, p.VoterDirectoryID) {
		out.ErrorCode = kerr.InvalidVoterKey.Code
	}
	out.LeaderID, out.LeaderEpoch = q.m.leader, q.m.epoch
	t := kmsg.NewBeginQuorumEpochResponseTopic()
	t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.BeginQuorumEpochResponseTopicPartition{out}
	resp.Topics = append(resp.Topics, t)
	if e, ok := q.leaderAt(at); ok {
		n := kmsg.NewBeginQuorumEpochResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = q.m.leader, e.Host, e.Port
		resp.NodeEndpoints = append(resp.NodeEndpoints, n)
	}
	return resp
}

// takeLeader follows the leader that a request names. Where Kafka dies of what it says,
// the request is refused and nothing changes.
func (q *Quorum) takeLeader(leader, epoch int32, endpoints []Endpoint, now time.Time) int16 {
	if epoch < q.m.epoch {
		return kerr.FencedLeaderEpoch.Code
	}
	if leader < 0 {
		return kerr.InvalidRequest.Code
	}
	if err := q.m.follow(epoch, leader, endpoints, now); err != nil {
		q.opt.Logger.Error("a request breaks the quorum's protocol", "error", err)
		return kerr.FencedLeaderEpoch.Code
	}
	return 0
}

func (q *Quorum) handleEnd(rq *kmsg.EndQuorumEpochRequest, at listener, now time.Time) kmsg.Response {
	resp := rq.ResponseKind().(*kmsg.EndQuorumEpochResponse)
	if q.foreign(rq.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(rq.Topics) != 1 || rq.Topics[0].Topic != ids.MetadataTopic || len(rq.Topics[0].Partitions) != 1 || rq.Topics[0].Partitions[0].Partition != 0 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := rq.Topics[0].Partitions[0]
	var preferred []ReplicaKey
	for _, id := range p.PreferredSuccessors {
		preferred = append(preferred, ReplicaKey{ID: id})
	}
	for _, c := range p.PreferredCandidates {
		preferred = append(preferred, ReplicaKey{c.CandidateID, c.CandidateDirectoryID})
	}
	out := kmsg.NewEndQuorumEpochResponseTopicPartition()
	if out.ErrorCode = q.takeLeader(p.LeaderID, p.LeaderEpoch, nil, now); out.ErrorCode == 0 {
		q.m.endEpoch(p.LeaderID, preferred, now)
	}
	out.LeaderID, out.LeaderEpoch = q.m.leader, q.m.epoch
	t := kmsg.NewEndQuorumEpochResponseTopic()
	t.Topic, t.Partitions = ids.MetadataTopic, []kmsg.EndQuorumEpochResponseTopicPartition{out}
	resp.Topics = append(resp.Topics, t)
	if e, ok := q.leaderAt(at); ok {
		n := kmsg.NewEndQuorumEpochResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = q.m.leader, e.Host, e.Port
		resp.NodeEndpoints = append(resp.NodeEndpoints, n)
	}
	return resp
}

// handleFetch gives nil when the request is parked.
func (q *Quorum) handleFetch(rq *kmsg.FetchRequest, at listener, to chan<- outcome, now time.Time) kmsg.Response {
	resp, park := q.fetch(rq, at, now)
	if !park {
		return resp
	}
	wait := time.Duration(rq.MaxWaitMillis) * time.Millisecond
	q.parked = append(q.parked, &parked{now.Add(wait), rq.Topics[0].Partitions[0].FetchOffset, rq, at, resp, to})
	return nil
}

func (q *Quorum) fetch(rq *kmsg.FetchRequest, at listener, now time.Time) (resp *kmsg.FetchResponse, park bool) {
	resp = rq.ResponseKind().(*kmsg.FetchResponse)
	if q.foreign(rq.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp, false
	}
	if rq.Version < 13 || len(rq.Topics) != 1 || rq.Topics[0].TopicID != ids.MetadataTopicID || len(rq.Topics[0].Partitions) != 1 || rq.Topics[0].Partitions[0].Partition != 0 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp, false
	}
	out := kmsg.NewFetchResponseTopicPartition()
	park = q.fetchPartition(rq, &out, now)
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = q.m.leader, q.m.epoch
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.TopicID, t.Partitions = ids.MetadataTopic, ids.MetadataTopicID, []kmsg.FetchResponseTopicPartition{out}
	resp.Topics = append(resp.Topics, t)
	if e, ok := q.leaderAt(at); ok && rq.Version >= 17 {
		n := kmsg.NewFetchResponseBroker()
		n.NodeID, n.Host, n.Port = q.m.leader, e.Host, int32(e.Port)
		resp.Brokers = append(resp.Brokers, n)
	}
	return resp, park
}

func (q *Quorum) epochError(epoch int32) int16 {
	switch m := &q.m; {
	case epoch < m.epoch:
		return kerr.FencedLeaderEpoch.Code
	case epoch > m.epoch:
		return kerr.UnknownLeaderEpoch.Code
	case q.stopping:
		return kerr.BrokerNotAvailable.Code
	case m.role != Leader:
		return kerr.NotLeaderForPartition.Code
	}
	return 0
}

// fetchPartition answers one replica's fetch. Spec: kraft.md 3.5.
func (q *Quorum) fetchPartition(rq *kmsg.FetchRequest, out *kmsg.FetchResponseTopicPartition, now time.Time) (park bool) {
	p := rq.Topics[0].Partitions[0]
	m, log := &q.m, q.opt.Log
	out.RecordBatches = []byte{}
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = -1, -1, -1
	if rq.MaxWaitMillis < 0 || p.FetchOffset < 0 || p.LastFetchedEpoch < 0 || p.LastFetchedEpoch > p.CurrentLeaderEpoch {
		out.ErrorCode = kerr.InvalidRequest.Code
		return false
	}
	if out.ErrorCode = q.epochError(p.CurrentLeaderEpoch); out.ErrorCode != 0 {
		return false
	}
	replica := ReplicaKey{rq.ReplicaID, p.ReplicaDirectoryID}
	if rq.Version >= 15 {
		replica.ID = rq.ReplicaState.ID
	}
	if replica.ID == q.self.ID {
		out.ErrorCode = kerr.UnknownServerError.Code
		return false
	}
	o := log.Offsets()
	out.HighWatermark, out.LogStartOffset = m.hw, o.LogStart
	if id := q.snapshotFor(p.FetchOffset, p.LastFetchedEpoch, o.LogStart); id != noSnapshot {
		out.SnapshotID.EndOffset, out.SnapshotID.Epoch = id.EndOffset, id.Epoch
		return false
	}
	if p.FetchOffset > 0 || o.LogStart > 0 {
		if e, end := q.epochEnd(p.LastFetchedEpoch, o.End); e != p.LastFetchedEpoch || end < p.FetchOffset {
			out.DivergingEpoch.Epoch, out.DivergingEpoch.EndOffset = e, end
			return false
		}
	}
	if p.FetchOffset < o.End {
		read, err := log.Read(p.FetchOffset, o.End, int(min(rq.MaxBytes, maxBatchBytes)), true)
		if err == nil {
			out.RecordBatches, err = read.Region.ReadAll()
			read.Region.Done()
		}
		if err != nil {
			out.ErrorCode = kerr.UnknownServerError.Code
			q.opt.Logger.Error("reading the metadata log for a replica", "replica", replica.ID, "offset", p.FetchOffset, "error", err)
			return false
		}
	}
	m.replicaFetched(replica, p.FetchOffset, o.End, now)
	m.advance(o.Durable)
	out.HighWatermark = m.hw
	if len(out.RecordBatches) > 0 || rq.MaxWaitMillis == 0 || rq.Version >= 18 && p.HighWatermark < m.hw {
		return false
	}
	return true
}

// snapshotFor is the snapshot that a replica must load instead of fetching.
func (q *Quorum) snapshotFor(offset int64, epoch int32, logStart int64) SnapshotID {
	if len(q.snaps) == 0 {
		return noSnapshot
	}
	oldest := q.snaps[0]
	if offset == 0 || logStart > 0 && (offset < logStart || offset == logStart && epoch != oldest.Epoch || epoch < oldest.Epoch) {
		return q.newest()
	}
	return noSnapshot
}

// epochEnd is the largest epoch not above e in the log, and its end.
func (q *Quorum) epochEnd(e int32, end int64) (int32, int64) {
	latest := q.opt.Log.LatestEpoch()
	if latest < 0 { // nothing but a snapshot, or nothing at all
		last := q.logEnd()
		return min(e, last.epoch), last.offset
	}
	if e > latest {
		return latest, end
	}
	got, at := q.opt.Log.EpochEnd(e)
	if len(q.snaps) > 0 && at == q.snaps[0].EndOffset {
		return q.snaps[0].Epoch, at
	}
	return got, at
}

// releaseParked answers again those for whom something may have changed.
func (q *Quorum) releaseParked(concerned func(*parked) bool) {
	now := q.opt.Now()
	waiting := q.parked
	q.parked = nil
	for _, p := range waiting {
		if !concerned(p) {
			q.parked = append(q.parked, p)
			continue
		}
		resp, _ := q.fetch(p.rq, p.at, now)
		q.peers.answers = append(q.peers.answers, answer{p.to, outcome{response: resp}})
	}
}

func (q *Quorum) expireParked(now time.Time) {
	q.parked = slices.DeleteFunc(q.parked, func(p *parked) bool {
		if p.until.After(now) {
			return false
		}
		q.peers.answers = append(q.peers.answers, answer{p.to, outcome{response: p.first}})
		return true
	})
}

func (q *Quorum) handleFetchSnapshot(rq *kmsg.FetchSnapshotRequest, at listener, now time.Time) kmsg.Response {
	resp := rq.ResponseKind().(*kmsg.FetchSnapshotResponse)
	if q.foreign(rq.ClusterID) {
		resp.ErrorCode = kerr.InconsistentClusterID.Code
		return resp
	}
	if len(rq.Topics) != 1 || len(rq.Topics[0].Partitions) != 1 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	p := rq.Topics[0].Partitions[0]
	out := kmsg.NewFetchSnapshotResponseTopicPartition()
	out.Partition, out.Bytes = p.Partition, []byte{}
	out.SnapshotID.EndOffset, out.SnapshotID.Epoch = p.SnapshotID.EndOffset, p.SnapshotID.Epoch
	if rq.Topics[0].Topic != ids.MetadataTopic || p.Partition != 0 {
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	} else if out.ErrorCode = q.epochError(p.CurrentLeaderEpoch); out.ErrorCode == 0 {
		out.ErrorCode = q.readSnapshotPart(SnapshotID{p.SnapshotID.EndOffset, p.SnapshotID.Epoch}, p.Position, rq.MaxBytes, &out)
		if out.ErrorCode == 0 {
			q.m.hear(ReplicaKey{rq.ReplicaID, p.ReplicaDirectoryID}, now)
		}
	}
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = q.m.leader, q.m.epoch
	t := kmsg.NewFetchSnapshotResponseTopic()
	t.Topic, t.Partitions = rq.Topics[0].Topic, []kmsg.FetchSnapshotResponseTopicPartition{out}
	resp.Topics = append(resp.Topics, t)
	if e, ok := q.leaderAt(at); ok {
		n := kmsg.NewFetchSnapshotResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port = q.m.leader, e.Host, e.Port
		resp.NodeEndpoints = append(resp.NodeEndpoints, n)
	}
	return resp
}

func (q *Quorum) readSnapshotPart(id SnapshotID, position int64, maxBytes int32, out *kmsg.FetchSnapshotResponseTopicPartition) int16 {
	if !slices.Contains(q.snaps, id) {
		return kerr.SnapshotNotFound.Code
	}
	file, err := q.opt.FS.OpenFile(path.Join(q.opt.Dir, id.fileName()), vfs.ReadOnly)
	if err != nil {
		return kerr.SnapshotNotFound.Code
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return kerr.UnknownServerError.Code
	}
	if position < 0 || position >= size {
		return kerr.PositionOutOfRange.Code
	}
	out.Size, out.Position = size, position
	out.Bytes = make([]byte, min(int64(max(maxBytes, 1)), size-position, maxBatchBytes))
	if _, err := file.ReadAt(out.Bytes, position); err != nil && err != io.EOF {
		return kerr.UnknownServerError.Code
	}
	return 0
}

const observerMemory = 300 * time.Second // how long DescribeQuorum shows a silent observer

func (q *Quorum) handleDescribe(rq *kmsg.DescribeQuorumRequest, now time.Time) kmsg.Response {
	resp := rq.ResponseKind().(*kmsg.DescribeQuorumResponse)
	if len(rq.Topics) == 0 {
		return resp // nothing asked, nothing wrong
	}
	if len(rq.Topics) != 1 || len(rq.Topics[0].Partitions) != 1 {
		resp.ErrorCode = kerr.InvalidRequest.Code
		return resp
	}
	out := kmsg.NewDescribeQuorumResponseTopicPartition()
	out.Partition = rq.Topics[0].Partitions[0].Partition
	m := &q.m
	switch {
	case rq.Topics[0].Topic != ids.MetadataTopic || out.Partition != 0:
		out.ErrorCode = kerr.UnknownTopicOrPartition.Code
	case m.role != Leader:
		out.ErrorCode = kerr.NotLeaderForPartition.Code
	default:
		q.describe(&out, now)
		resp.Nodes = q.describeNodes()
	}
	if e := kerr.TypedErrorForCode(out.ErrorCode); e != nil {
		out.ErrorMessage = kmsg.StringPtr(e.Description)
	}
	t := kmsg.NewDescribeQuorumResponseTopic()
	t.Topic, t.Partitions = rq.Topics[0].Topic, []kmsg.DescribeQuorumResponseTopicPartition{out}
	resp.Topics = append(resp.Topics, t)
	return resp
}

func (q *Quorum) describe(out *kmsg.DescribeQuorumResponseTopicPartition, now time.Time) {
	m := &q.m
	out.LeaderID, out.LeaderEpoch, out.HighWatermark = m.leader, m.epoch, m.hw
	own := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	own.ReplicaID, own.LogEndOffset = q.self.ID, q.opt.Log.Offsets().End
	own.LastFetchTimestamp, own.LastCaughtUpTimestamp = record.Millis(now), record.Millis(now)
	for _, v := range m.voters {
		s := own
		s.ReplicaDirectoryID = v.VoterDirectoryID
		if v.VoterID != q.self.ID {
			s = q.replicaState(ReplicaKey{v.VoterID, v.VoterDirectoryID})
		}
		out.CurrentVoters = append(out.CurrentVoters, s)
	}
	for k, p := range m.replicas {
		if !m.voters.has(k) && now.Sub(p.fetchedAt) < observerMemory {
			s := q.replicaState(k)
			s.ReplicaDirectoryID = k.Dir
			out.Observers = append(out.Observers, s)
		}
	}
	if !m.voter() {
		own.ReplicaDirectoryID = q.self.Dir
		out.Observers = append(out.Observers, own)
	}
	slices.SortFunc(out.Observers, func(a, b kmsg.DescribeQuorumResponseTopicPartitionReplicaState) int {
		return int(a.ReplicaID) - int(b.ReplicaID)
	})
}

func (q *Quorum) replicaState(k ReplicaKey) kmsg.DescribeQuorumResponseTopicPartitionReplicaState {
	s := kmsg.NewDescribeQuorumResponseTopicPartitionReplicaState()
	s.ReplicaID, s.ReplicaDirectoryID, s.LogEndOffset = k.ID, k.Dir, -1
	s.LastFetchTimestamp, s.LastCaughtUpTimestamp = -1, -1
	for r, p := range q.m.replicas {
		if r.ID != k.ID || !k.Dir.IsZero() && k.Dir != r.Dir {
			continue
		}
		s.LogEndOffset, s.LastFetchTimestamp = p.end, record.Millis(p.fetchedAt)
		if !p.caughtUpAt.IsZero() {
			s.LastCaughtUpTimestamp = record.Millis(p.caughtUpAt)
		}
	}
	return s
}

func (q *Quorum) describeNodes() []kmsg.DescribeQuorumResponseNode {
	var out []kmsg.DescribeQuorumResponseNode
	for _, v := range q.m.voters {
		n := kmsg.NewDescribeQuorumResponseNode()
		n.NodeID = v.VoterID
		endpoints := v.Endpoints
		if v.VoterID == q.self.ID && len(q.opt.Endpoints) > 0 {
			endpoints = q.opt.Endpoints
		}
		for _, e := range endpoints {
			l := kmsg.NewDescribeQuorumResponseNodeListener()
			l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
			n.Listeners = append(n.Listeners, l)
		}
		out = append(out, n)
	}
	return out
}
