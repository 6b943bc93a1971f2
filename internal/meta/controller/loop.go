package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

const (
	maxQueue       = 4096    // requests waiting to be decided
	maxBatchBytes  = 4 << 20 // of one append of a decision that need not be atomic
	maxRebalance   = 1000    // leaderships moved in one go
	lateTolerance  = time.Second
	rebalanceSoon  = 100 * time.Millisecond
	stoppedMessage = "the controller on this node is not the active one"
)

// Controller runs decisions one after another while this node leads the quorum.
type Controller struct {
	opt Options

	mu struct {
		sync.Mutex
		queue   []func()
		running bool
		closed  bool
	}

	// The rest belongs to the running job.
	core      *core // nil while not leading
	epoch     int32
	newest    *commit // of the last append
	expiry    *time.Timer
	expiryAt  time.Time
	rebalance *time.Timer
}

// New makes a controller that does not lead.
func New(opt Options) *Controller {
	return &Controller{opt: opt.withDefaults(), epoch: -1}
}

// commit is an append on its way to being committed, and who waits for it.
type commit struct {
	mu struct {
		sync.Mutex
		done    bool
		err     error
		waiters []func(error)
	}
}

func (k *commit) finish(err error) {
	k.mu.Lock()
	k.mu.done, k.mu.err = true, err
	waiters := k.mu.waiters
	k.mu.waiters = nil
	k.mu.Unlock()
	for _, w := range waiters {
		w(err)
	}
}

// then calls w when the append is settled, at once if it is already or k is nil.
func (k *commit) then(w func(error)) {
	if k == nil {
		w(nil)
		return
	}
	k.mu.Lock()
	if !k.mu.done {
		k.mu.waiters = append(k.mu.waiters, w)
		k.mu.Unlock()
		return
	}
	err := k.mu.err
	k.mu.Unlock()
	w(err)
}

// submit queues a job and starts the loop if it rests. Requests are refused when too
// many wait; what the controller itself needs is not.
func (c *Controller) submit(job func(), request bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return fmt.Errorf("%s: %w", stoppedMessage, kerr.NotController)
	}
	if request && len(c.mu.queue) >= maxQueue {
		return fmt.Errorf("%d requests wait for the controller: %w", maxQueue, kerr.RequestTimedOut)
	}
	c.mu.queue = append(c.mu.queue, job)
	if !c.mu.running {
		c.mu.running = true
		go c.run()
	}
	return nil
}

func (c *Controller) run() {
	for {
		c.mu.Lock()
		jobs := c.mu.queue
		c.mu.queue = nil
		if len(jobs) == 0 {
			c.mu.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, job := range jobs {
			job()
		}
		c.arm()
	}
}

// Lead starts deciding in an epoch, from the committed image. endOffset is the offset that
// the next record of the log gets.
func (c *Controller) Lead(epoch int32, committed *image.Image, endOffset int64) {
	_ = c.submit(func() { c.lead(epoch, committed, endOffset) }, false)
}

// Resign stops deciding if epoch is still the one that Lead began. Waiting requests end
// when the log tells what became of their records.
func (c *Controller) Resign(epoch int32) {
	_ = c.submit(func() {
		if c.epoch == epoch {
			c.stop()
		}
	}, false)
}

// Close stops the controller for good.
func (c *Controller) Close() {
	_ = c.submit(c.stop, false)
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
}

func (c *Controller) lead(epoch int32, committed *image.Image, endOffset int64) {
	if epoch <= c.epoch {
		return
	}
	c.stop()
	c.epoch = epoch
	c.core = newCore(c.opt, committed, endOffset, c.opt.Now())
	var first []metarec.Record
	if committed.InTransaction() {
		reason := "Controller failover"
		first = append(first, &metarec.AbortTransaction{Reason: &reason})
	}
	if committed.IsEmpty() {
		first = append(first, c.core.bootstrap()...)
	}
	if len(first) > 0 {
		c.commit(result{records: first, atomic: true}, func(err error) {
			if err != nil {
				c.opt.Logger.Warn("first records of the epoch were lost", "epoch", epoch, "error", err)
			}
		})
	}
	if c.core != nil && c.opt.Leading != nil {
		c.opt.Leading(epoch, true)
	}
}

func (c *Controller) stop() {
	was := c.core != nil
	c.core, c.newest = nil, nil
	if c.expiry != nil {
		c.expiry.Stop()
		c.expiryAt = time.Time{}
	}
	if c.rebalance != nil {
		c.rebalance.Stop()
		c.rebalance = nil
	}
	if was && c.opt.Leading != nil {
		c.opt.Leading(c.epoch, false)
	}
}

// Handle decides a request and returns its response once all it rests on is committed.
// Errors, which are for the whole request: NOT_CONTROLLER when this node does not lead or
// lost the lead, REQUEST_TIMED_OUT after the deadline, when the change may still happen.
func (c *Controller) Handle(ctx context.Context, rq Request) (kmsg.Response, error) {
	type outcome struct {
		response kmsg.Response
		err      error
	}
	if !rq.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, rq.Deadline)
		defer cancel()
	}
	arrived := c.opt.Now()
	answer := make(chan outcome, 1)
	err := c.submit(func() {
		if ctx.Err() != nil {
			return // nobody waits any more, and nothing has been promised
		}
		c.serve(&rq, arrived, func(r kmsg.Response, err error) { answer <- outcome{r, err} })
	}, true)
	if err != nil {
		return nil, err
	}
	select {
	case o := <-answer:
		return o.response, o.err
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return nil, fmt.Errorf("the controller did not answer in time: %w", kerr.RequestTimedOut)
		}
		return nil, ctx.Err()
	}
}

func (c *Controller) serve(rq *Request, arrived time.Time, answer func(kmsg.Response, error)) {
	if c.core == nil {
		answer(nil, fmt.Errorf("%s: %w", stoppedMessage, kerr.NotController))
		return
	}
	res := c.core.decide(rq, arrived)
	if res.err != nil {
		answer(nil, res.err)
		return
	}
	c.commit(res, func(err error) {
		if err != nil {
			answer(nil, err)
			return
		}
		answer(res.response, nil)
	})
	if touchesUnclean(res.records) {
		_ = c.submit(c.electLeaderless, false)
	}
}

func touchesUnclean(records []metarec.Record) bool {
	for _, r := range records {
		if cfg, ok := r.(*metarec.Config); ok && cfg.Name == uncleanKey {
			return true
		}
	}
	return false
}

// commit replays and appends a decision's records and calls done when they, or with none the
// newest records before, are committed. The replay comes first: what the image refuses must not reach the log.
func (c *Controller) commit(res result, done func(error)) {
	for _, batch := range batches(res, c.core.img.MetadataVersion()) {
		if err := c.append(batch); err != nil {
			done(err)
			return
		}
	}
	if res.appended != nil {
		res.appended(c.core.next - 1)
	}
	c.newest.then(func(err error) {
		if err != nil {
			err = fmt.Errorf("the metadata records were not committed (%v): %w", err, kerr.NotController)
		}
		done(err)
	})
}

type batch struct {
	records []metarec.Record
	encoded [][]byte
}

func batches(res result, metadata int16) []batch {
	var out []batch
	size := 0
	for _, r := range res.records {
		b := metarec.Encode(r, metarec.VersionFor(r, metadata))
		if len(out) == 0 || !res.atomic && (size+len(b) > maxBatchBytes || len(out[len(out)-1].records) >= MaxRecords) {
			out, size = append(out, batch{}), 0
		}
		last := &out[len(out)-1]
		last.records, last.encoded = append(last.records, r), append(last.encoded, b)
		size += len(b)
	}
	return out
}

func (c *Controller) append(b batch) error {
	if c.core == nil {
		return fmt.Errorf("%s: %w", stoppedMessage, kerr.NotController)
	}
	before, expect := c.core.img, c.core.next+int64(len(b.records))-1
	if err := c.core.apply(b.records, expect, c.epoch); err != nil {
		err = fmt.Errorf("the controller's decision does not fit its image: %w", err)
		c.opt.Logger.Error("controller decision dropped", "error", err)
		return fmt.Errorf("%w: %w", err, kerr.UnknownServerError)
	}
	k := &commit{}
	last, err := c.opt.Log.Append(c.epoch, b.encoded, k.finish)
	if err != nil {
		c.opt.Logger.Warn("metadata append failed", "epoch", c.epoch, "error", err)
		c.stop()
		return fmt.Errorf("the metadata log refused records (%v): %w", err, kerr.NotController)
	}
	c.newest = k
	if last != expect {
		// The quorum put a record of its own in between; offsets moved, decisions did not.
		img, _, err := before.Apply(b.records, last, c.epoch)
		if err != nil {
			c.fatal(err)
			return fmt.Errorf("%w: %w", err, kerr.UnknownServerError)
		}
		c.core.img, c.core.next = img, last+1
	}
	return nil
}

func (c *Controller) fatal(err error) {
	c.stop()
	if c.opt.Fatal != nil {
		c.opt.Fatal(err)
	}
}

// arm keeps one timer set for the end of the earliest session, and one for the balance of
// leaders while there is more than one broker. A timer that is early looks again.
func (c *Controller) arm() {
	if c.core == nil {
		return
	}
	if next := c.core.nextExpiry(); !next.IsZero() && (c.expiryAt.IsZero() || next.Before(c.expiryAt)) {
		c.armExpiry(next)
	}
	if c.rebalance == nil && len(c.core.img.Brokers()) > 1 {
		c.armRebalance(c.opt.RebalanceInterval)
	}
}

func (c *Controller) armExpiry(at time.Time) {
	if c.expiry != nil {
		c.expiry.Stop()
	}
	c.expiryAt = at
	epoch := c.epoch
	c.expiry = time.AfterFunc(at.Sub(c.opt.Now()), func() {
		fired := c.opt.Now()
		_ = c.submit(func() { c.expire(epoch, at, fired) }, false)
	})
}

// expire fences brokers whose session had ended when the timer fired; heartbeats that
// arrived before that stand before this job in the queue, however slow it was.
func (c *Controller) expire(epoch int32, at, fired time.Time) {
	if c.core == nil || c.epoch != epoch || !c.expiryAt.Equal(at) {
		return
	}
	c.expiryAt = time.Time{}
	if late := fired.Sub(at); late > lateTolerance {
		c.core.excuse(late)
	}
	for _, b := range c.core.expired(fired) {
		if c.core == nil {
			return
		}
		// Each is fenced on the image that the one before left (KAFKA-13173).
		c.opt.Logger.Info("fencing broker: its session ended", "broker", b.ID, "epoch", b.Epoch)
		records := c.core.fence(c.core.img.Broker(b.ID))
		delete(c.core.sessions, b.ID)
		c.commit(result{records: records}, func(err error) {
			if err != nil {
				c.opt.Logger.Warn("fencing was lost", "broker", b.ID, "error", err)
			}
		})
	}
}

func (c *Controller) armRebalance(after time.Duration) {
	epoch := c.epoch
	c.rebalance = time.AfterFunc(after, func() {
		_ = c.submit(func() {
			if c.core == nil || c.epoch != epoch {
				return
			}
			c.rebalance = nil
			c.electLeaderless()
			if c.core == nil || c.opt.DisableLeaderRebalancing {
				return
			}
			records := c.core.rebalanceLeaders(maxRebalance)
			c.commit(result{records: records}, func(error) {})
			if len(records) == maxRebalance && c.core != nil {
				c.armRebalance(rebalanceSoon)
			}
		}, false)
	})
}

// electLeaderless tries again where there is no leader: an unclean election may have been
// allowed since.
func (c *Controller) electLeaderless() {
	if c.core == nil {
		return
	}
	if records := c.core.electLeaderless(-1); len(records) > 0 {
		c.commit(result{records: records}, func(error) {})
	}
}
