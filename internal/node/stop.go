package node

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// fatal ends the node because it cannot go on. It returns at once: the caller may be a
// part that has to stop first. While the node starts, ending it is Start's own work.
func (n *Node) fatal(err error) {
	n.failure.Do(func() {
		n.failure.err = err
		n.opts.Log.Error("the server cannot go on", "err", err)
		close(n.stopping)
		go func() {
			select {
			case <-n.started:
			case <-n.done:
				return
			}
			n.Abandon()
			if n.opts.Fatal != nil {
				n.opts.Fatal(err)
			}
		}()
	})
}

// Done is closed when the node has stopped; Err says why, nil after Close.
func (n *Node) Done() <-chan struct{} { return n.done }

func (n *Node) Err() error {
	select {
	case <-n.done:
		return errors.Join(n.failure.err, n.end.err)
	default:
		return nil
	}
}

// Close stops in order: leaderships are handed over, clients are let go, everything is
// flushed and the directories are marked as cleanly stopped. ctx bounds the handing over.
func (n *Node) Close(ctx context.Context) error {
	n.end.Do(func() {
		began := time.Now()
		epoch := int64(-1)
		if n.life != nil {
			epoch = n.life.Epoch()
			if n.layers().Bool("controlled.shutdown.enable") {
				n.handOver(ctx)
			}
		}
		n.stopParts()
		n.end.err = n.closeStore(epoch)
		n.opts.Log.Info("stopped", "took", time.Since(began).Round(time.Millisecond).String())
		close(n.done)
	})
	<-n.done
	return n.end.err
}

// handOver moves leaderships away, as long as there is a controller to ask: a node that
// cannot go on has none.
func (n *Node) handOver(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-n.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	if err := n.life.Shutdown(ctx); err != nil {
		n.opts.Log.Warn("stopping without handing leaderships over", "err", err)
	}
}

// stopParts ends everything that runs, users before what they use.
func (n *Node) stopParts() {
	for _, s := range n.servers {
		if !n.conf.IsController(s.Name()) {
			s.Close()
		}
	}
	if n.groups != nil {
		n.groups.close()
	}
	n.cancel()
	if n.life != nil {
		n.life.Close()
	}
	if n.controller != nil {
		n.controller.Close()
	}
	for _, s := range n.servers {
		s.Close()
	}
	if n.quorum != nil {
		n.quorum.Close()
	}
	if n.feed != nil {
		n.feed.Close()
	}
	if n.peers != nil {
		n.peers.Close()
	}
	n.closeListeners()
	n.tasks.Wait()
}

func (n *Node) closeStore(brokerEpoch int64) error {
	if n.store == nil {
		return nil
	}
	var err error
	if n.metadataLog != nil {
		if cerr := n.metadataLog.Close(); cerr != nil {
			err = fmt.Errorf("closing the metadata log: %w", cerr)
		}
	}
	return errors.Join(err, n.store.Close(brokerEpoch))
}

// Abandon stops as a killed process would, as far as the disk is concerned: nothing is
// flushed or marked.
func (n *Node) Abandon() {
	n.end.Do(func() {
		n.stopParts()
		if n.metadataLog != nil {
			n.metadataLog.Abandon()
		}
		if n.store != nil {
			n.store.Abandon()
		}
		close(n.done)
	})
	<-n.done
}
