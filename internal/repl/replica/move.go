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
// returns when that is done, ctx ends or the store has dropped the future.
func (t *Table) Move(ctx context.Context, tp ids.TopicPartition) error {
	p := t.Get(tp)
	if p == nil {
		return fmt.Errorf("%s: %w", tp, kerr.ReplicaNotAvailable)
	}
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
		moved := false
		err = p.Swap(func() (*commitlog.Log, error) {
			// An append may have come between the last look and the lock.
			if done, err := t.opts.Store.CatchUp(tp, moveChunk); err != nil || !done {
				return nil, err
			}
			moved = true
			return t.opts.Store.Promote(tp)
		})
		if err != nil || moved {
			return err
		}
	}
}
