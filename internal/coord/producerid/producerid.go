package producerid

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Controller sends a request to the active controller.
type Controller interface {
	Request(ctx context.Context, rq kmsg.Request) (kmsg.Response, error)
}

// Allocator gives producer ids.
type Allocator struct {
	node       int32
	epoch      func() int64 // broker epoch
	controller Controller
	mu         struct {
		sync.Mutex
		next, end int64         // what is left of the block
		asking    chan struct{} // closed when the allocation under way has ended
		err       error         // of the last one
	}
}

// New makes an allocator for a broker.
func New(node int32, epoch func() int64, controller Controller) *Allocator {
	return &Allocator{node: node, epoch: epoch, controller: controller}
}

// Next gives an id that nobody else has or had. An error is for the client to retry.
func (a *Allocator) Next(ctx context.Context) (int64, error) {
	for {
		a.mu.Lock()
		if a.mu.next < a.mu.end {
			id := a.mu.next
			a.mu.next++
			a.mu.Unlock()
			return id, nil
		}
		wait := a.mu.asking
		if wait == nil {
			wait = make(chan struct{})
			a.mu.asking = wait
			a.mu.Unlock()
			a.allocate(ctx, wait)
		} else {
			a.mu.Unlock()
			select {
			case <-wait:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
		a.mu.Lock()
		err := a.mu.err
		a.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
}

func (a *Allocator) allocate(ctx context.Context, done chan struct{}) {
	first, n, err := a.ask(ctx)
	a.mu.Lock()
	a.mu.asking, a.mu.err = nil, err
	if err == nil {
		a.mu.next, a.mu.end = first, first+n
	}
	a.mu.Unlock()
	close(done)
}

func (a *Allocator) ask(ctx context.Context) (first, n int64, err error) {
	rq := kmsg.NewPtrAllocateProducerIDsRequest()
	rq.BrokerID, rq.BrokerEpoch = a.node, a.epoch()
	resp, err := a.controller.Request(ctx, rq)
	if err != nil {
		return 0, 0, fmt.Errorf("allocating producer ids: %v: %w", err, kerr.CoordinatorLoadInProgress)
	}
	r := resp.(*kmsg.AllocateProducerIDsResponse)
	if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
		return 0, 0, fmt.Errorf("allocating producer ids: %v: %w", err, kerr.CoordinatorLoadInProgress)
	}
	return r.ProducerIDStart, int64(r.ProducerIDLen), nil
}
