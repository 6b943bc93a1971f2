package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/quorum"
	"runnel/internal/peer"
)

// leadership tells waiters that the active controller may have changed.
type leadership struct {
	mu      sync.Mutex
	changed chan struct{}
}

func (l *leadership) now() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.changed
}

func (l *leadership) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// active is the active controller's address, as the quorum knows it.
func (n *Node) active() (addr string, changed <-chan struct{}, ok bool) {
	changed = n.leads.now()
	v := n.quorum.View()
	if v.Leader < 0 {
		return "", changed, false
	}
	endpoints := v.LeaderAt
	if v.Leader == n.conf.NodeID && n.conf.Controller {
		if !n.deciding.Load() {
			return "", changed, false // elected, but not yet at work
		}
		endpoints = n.controllerEndpoints()
	}
	for _, e := range endpoints {
		if len(n.conf.ControllerListeners) > 0 && e.Name == n.conf.ControllerListeners[0] {
			return net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))), changed, true
		}
	}
	return "", changed, false
}

// toController asks the active controller, whoever that is at the moment.
type toController struct {
	n     *Node
	peers *peer.Client
}

// Request implements what lifecycle, producerid and the node itself need.
func (t toController) Request(ctx context.Context, rq kmsg.Request) (kmsg.Response, error) {
	for {
		addr, changed, ok := t.n.active()
		if ok {
			return t.peers.Request(ctx, addr, rq)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("no active controller is known: %w", ctx.Err())
		case <-t.n.stopping:
			return nil, errStopping
		}
	}
}

var errStopping = errors.New("the node is stopping")

// sendRaft carries the quorum's requests to other voters.
func (n *Node) sendRaft(ctx context.Context, to quorum.Destination, rq kmsg.Request) (kmsg.Response, error) {
	return n.peers.Request(ctx, net.JoinHostPort(to.Host, strconv.Itoa(int(to.Port))), rq)
}

// registerController tells the cluster of this controller's addresses and features,
// again until it is known (KIP-919).
func (n *Node) registerController(ctx context.Context, incarnation ids.UUID) {
	rq := kmsg.NewPtrControllerRegistrationRequest()
	rq.ControllerID, rq.IncarnationID = n.conf.NodeID, incarnation
	for _, e := range n.controllerEndpoints() {
		l := kmsg.NewControllerRegistrationRequestListener()
		l.Name, l.Host, l.Port = e.Name, e.Host, e.Port
		rq.Listeners = append(rq.Listeners, l)
	}
	for _, f := range feature.Supported() {
		rf := kmsg.NewControllerRegistrationRequestFeature()
		rf.Name, rf.MinSupportedVersion, rf.MaxSupportedVersion = f.Name, f.Min, f.Max
		rq.Features = append(rq.Features, rf)
	}
	for {
		tctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		resp, err := toController{n, n.peers}.Request(tctx, rq)
		cancel()
		if err == nil && resp.(*kmsg.ControllerRegistrationResponse).ErrorCode == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-n.leads.now():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// catchUp waits until this node's image holds everything that is committed here.
func (n *Node) catchUp(ctx context.Context) error {
	return n.feed.Await(ctx, n.quorum.View().HighWatermark-1)
}
