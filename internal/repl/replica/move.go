package replica

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"runnel/internal/kit/ids"
	"runnel/internal/store/commitlog"
)

// moveChunk is what one step of a move copies, in bytes.
const moveChunk = 4 << 20

// Move carries a replica's records into the future log that the store has made for it,
// and puts that log in the current one's place once it has everything (KIP-113). It
// returns when that is done, ctx ends or the store has dropped the future. While one runs
// for a partition, another only makes it look again.
func (t *Table) Move(ctx context.Context, tp ids.TopicPartition) error {
	t.moves.Lock()
	t.moves.asked[tp]++
	running := t.moves.asked[tp] > 1
	t.moves.Unlock()
	if running {
		return nil
	}
	for {
		err := t.move(ctx, tp)
		t.moves.Lock()
		again := t.moves.asked[tp] > 1 && ctx.Err() == nil
		if t.moves.asked[tp] = 1; !again {
			delete(t.moves.asked, tp)
		}
		t.moves.Unlock()
		if !again {
			return err
		}
	}
}

func (t *Table) move(ctx context.Context, tp ids.TopicPartition) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		done, err := t.opts.Store.CatchUp(tp, moveChunk)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		if moved, err := t.swap(tp); err != nil || moved {
			return err
		}
	}
}

// swap puts a future that has caught up in place. Under the partition's lock nothing is
// appended or deleted, and the store's log is this partition's and not one of a topic that
// has its name by now.
func (t *Table) swap(tp ids.TopicPartition) (moved bool, err error) {
	t.placing.Lock()
	defer t.placing.Unlock()
	p := t.Get(tp)
	if p == nil {
		return false, fmt.Errorf("%s: %w", tp, kerr.ReplicaNotAvailable)
	}
	err = p.Swap(func() (next *commitlog.Log, err error) {
		// An append may have come between the last look and the lock.
		if done, err := t.opts.Store.CatchUp(tp, moveChunk); err != nil || !done {
			return nil, err
		}
		next, err = t.opts.Store.Promote(tp)
		moved = next != nil
		return next, err
	})
	return moved, err
}
