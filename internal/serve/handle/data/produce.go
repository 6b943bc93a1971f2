package data

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/meta/image"
	"runnel/internal/repl/partition"
	"runnel/internal/serve/api"
)

// adminClient may write to internal topics (Kafka's own convention).
const adminClient = "__admin_client"

// waiting is an appended partition whose answer depends on replication.
type waiting struct {
	p       *partition.Partition
	next    int64 // committed when the high watermark reaches it
	epoch   int32
	topic   int // index in the answer
	inTopic int
}

// produce serves Produce v3-13 (KIP-98, KIP-467 record errors, KIP-516 topic ids, KIP-951
// leader hints). Spec: semantics.md 5. Its first stage appends, which fixes the order;
// acks=all may leave a second stage that waits for the high watermark.
func (d *Data) produce(ctx api.Context, rq *api.Request) api.Reply {
	req := rq.Body.(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	img, now := d.opts.Image(), d.opts.Now()
	call := produceCall{d: d, rq: rq, req: req, img: img, now: now}
	resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	var pend []waiting
	failed := error(nil)
	for i := range req.Topics {
		t, out := &req.Topics[i], &resp.Topics[i]
		out.Topic, out.TopicID = t.Topic, t.TopicID
		name, topicErr := call.resolve(t)
		out.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			po := &out.Partitions[j]
			*po = kmsg.NewProduceResponseTopicPartition()
			po.Partition = t.Partitions[j].Partition
			w, err := call.one(name, topicErr, &t.Partitions[j], po)
			if err != nil {
				failed = err
				call.refuse(name, po, err)
				if w.p != nil && tellsLogStart(err) {
					po.LogStartOffset = w.p.LogStart()
				}
				continue
			}
			if req.Acks == -1 {
				w.topic, w.inTopic = i, j
				pend = append(pend, w)
			}
		}
	}
	if req.Acks == 0 {
		if failed != nil {
			return api.Reply{Close: fmt.Errorf("produce with acks=0 failed, and closing is the only way to say so: %w", failed)}
		}
		return api.Reply{None: true}
	}
	resp.Brokers = call.endpoints()
	if pend = d.settle(resp, pend); len(pend) == 0 {
		return api.Done(resp)
	}
	return api.Reply{Later: func(ctx api.Context) api.Body {
		d.await(ctx, resp, pend, until(now, req.TimeoutMillis))
		return resp
	}}
}

// produceCall is one request's first stage.
type produceCall struct {
	d     *Data
	rq    *api.Request
	req   *kmsg.ProduceRequest
	img   *image.Image
	now   time.Time
	hints []int32 // leaders named in hints
}

// resolve finds the topic's name and what refuses the whole topic.
func (c *produceCall) resolve(t *kmsg.ProduceRequestTopic) (string, error) {
	name := t.Topic
	if c.req.Version >= 13 {
		topic := c.img.TopicByID(t.TopicID)
		if topic == nil {
			return "", kerr.UnknownTopicID
		}
		name = topic.Name
	}
	if a := c.req.Acks; a < -1 || a > 1 {
		return name, fmt.Errorf("acks is %d; it may be -1 (all), 0 or 1: %w", a, kerr.InvalidRequiredAcks)
	}
	if ids.IsInternal(name) && c.rq.ClientID != adminClient {
		return name, fmt.Errorf("topic %s is internal; clients do not write to it: %w", name, kerr.InvalidTopicException)
	}
	return name, nil
}

// one appends one partition's batch.
func (c *produceCall) one(topic string, topicErr error, in *kmsg.ProduceRequestTopicPartition, out *kmsg.ProduceResponseTopicPartition) (waiting, error) {
	if topicErr != nil {
		return waiting{}, topicErr
	}
	p, err := c.d.find(c.img, topic, in.Partition)
	if err != nil {
		return waiting{}, err
	}
	if in.Records == nil {
		return waiting{}, fmt.Errorf("the partition's records are null: %w", kerr.InvalidRequest)
	}
	batch, err := record.Single(in.Records)
	if err != nil {
		return waiting{}, err
	}
	if err := c.allowed(batch); err != nil {
		return waiting{}, err
	}
	a, s, err := p.Produce(batch, c.req.Acks == -1, c.now)
	if err != nil {
		return waiting{p: p}, err
	}
	out.BaseOffset = a.BaseOffset
	out.LogStartOffset = a.LogStart
	out.LogAppendTime = -1
	if a.Duplicate || batch.IsLogAppendTime() || c.appendTime(p) {
		out.LogAppendTime = a.MaxTimestamp
	}
	return waiting{p: p, next: a.LastOffset + 1, epoch: s.LeaderEpoch}, nil
}

func (c *produceCall) appendTime(p *partition.Partition) bool {
	return p.Config().TimestampType == 1
}

// allowed refuses what the request's version or this broker does not know.
func (c *produceCall) allowed(b record.Batch) error {
	if c.req.Version < 7 && b.Codec() == record.Zstd {
		return fmt.Errorf("zstd needs Produce v7: %w", kerr.UnsupportedCompressionType)
	}
	if b.IsTransactional() {
		if c.req.TransactionID == nil {
			return fmt.Errorf("a transactional batch came without a transactional id: %w", kerr.TransactionalIDAuthorizationFailed)
		}
		return fmt.Errorf("no transaction of producer %d is open here: %w", b.ProducerID(), kerr.InvalidTxnState)
	}
	return nil
}

// refuse fills a partition's answer from an error, with record errors and leader hints
// where the version has them.
func (c *produceCall) refuse(topic string, out *kmsg.ProduceResponseTopicPartition, err error) {
	out.ErrorCode = api.Code(err)
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = -1, -1, -1
	var be *record.BatchError
	if errors.As(err, &be) {
		msg := be.Message
		out.ErrorMessage = &msg
		for _, r := range be.Records {
			re := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			re.RelativeOffset = r.Index
			text := r.Message
			re.ErrorMessage = &text
			out.ErrorRecords = append(out.ErrorRecords, re)
		}
	} else {
		out.ErrorMessage = api.Message(err)
	}
	if out.ErrorCode == kerr.NotLeaderForPartition.Code && c.req.Version >= 10 {
		leader, epoch := leaderOf(c.img, topic, out.Partition)
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = leader, epoch
		c.hints = append(c.hints, leader)
	}
}

// tellsLogStart reports errors of a log that was reached and could be read, with which
// Kafka tells the log start offset.
func tellsLogStart(err error) bool {
	for _, other := range []error{kerr.NotLeaderForPartition, kerr.UnknownTopicOrPartition, kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.CorruptMessage, kerr.KafkaStorageError} {
		if errors.Is(err, other) {
			return false
		}
	}
	return true
}

// endpoints tells where the hinted leaders are, on the caller's listener.
func (c *produceCall) endpoints() []kmsg.ProduceResponseBroker {
	var out []kmsg.ProduceResponseBroker
	seen := map[int32]bool{}
	for _, id := range c.hints {
		b := c.img.Broker(id)
		if b == nil || seen[id] {
			continue
		}
		seen[id] = true
		if e, ok := b.Endpoint(c.rq.Listener); ok {
			n := kmsg.NewProduceResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = id, e.Host, int32(e.Port), b.Rack
			out = append(out, n)
		}
	}
	return out
}

// settle answers those partitions that are committed or failed and returns the rest.
func (d *Data) settle(resp *kmsg.ProduceResponse, pend []waiting) []waiting {
	rest := pend[:0]
	for _, w := range pend {
		done, err := w.p.Committed(w.next, w.epoch)
		if !done {
			rest = append(rest, w)
			continue
		}
		if err != nil {
			failPartition(&resp.Topics[w.topic].Partitions[w.inTopic], err)
		}
	}
	return rest
}

func failPartition(out *kmsg.ProduceResponseTopicPartition, err error) {
	out.ErrorCode = api.Code(err)
	out.BaseOffset, out.LogAppendTime, out.LogStartOffset = -1, -1, -1
}

// await waits for the high watermark of every pending partition, until the deadline.
func (d *Data) await(ctx context.Context, resp *kmsg.ProduceResponse, pend []waiting, deadline time.Time) {
	flag := partition.NewFlag()
	for i, w := range pend {
		w.p.Watch(flag, int32(i))
		defer w.p.Unwatch(flag, int32(i))
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	for {
		if pend = d.settle(resp, pend); len(pend) == 0 {
			return
		}
		select {
		case <-flag.C:
		case <-timer.C:
			for _, w := range d.settle(resp, pend) {
				failPartition(&resp.Topics[w.topic].Partitions[w.inTopic], kerr.RequestTimedOut)
			}
			return
		case <-ctx.Done():
			return
		}
	}
}
