package forward

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/serve/api"
	"runnel/internal/wire"
)

// Peers sends one request to a node.
type Peers interface {
	Request(ctx context.Context, addr string, rq kmsg.Request) (kmsg.Response, error)
}

// Options make a Forwarder.
type Options struct {
	Peers Peers
	// Active is the active controller's HOST:PORT, false while none is known; Changed is
	// closed when that may have changed.
	Active  func() (addr string, changed <-chan struct{}, ok bool)
	CatchUp func(ctx context.Context) error // waits until the image holds all that is committed
	Timeout time.Duration                   // request.timeout.ms
}

// Forwarder asks the active controller in a client's name.
type Forwarder struct{ opts Options }

// New makes a Forwarder.
func New(o Options) *Forwarder { return &Forwarder{o} }

// ErrUnsupported says that the controller does not know the request's version; the
// client's connection is to be closed.
var ErrUnsupported = errors.New("the controller does not support the request")

// Forward sends rq on and gives the controller's answer.
func (f *Forwarder) Forward(ctx context.Context, rq *api.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, f.opts.Timeout)
	defer cancel()
	env := kmsg.NewPtrEnvelopeRequest()
	env.RequestData = encode(rq)
	env.RequestPrincipal = encodePrincipal(rq.Principal)
	env.ClientHostAddress = address(rq.Host)
	for {
		addr, changed, ok := f.opts.Active()
		if ok {
			resp, err := f.opts.Peers.Request(ctx, addr, env)
			if err == nil {
				if answer, retry, err := f.unwrap(ctx, rq, resp.(*kmsg.EnvelopeResponse)); !retry {
					return answer, err
				}
			} else if ctx.Err() == nil && !retriable(err) {
				return nil, fmt.Errorf("forwarding to the active controller: %w", err)
			}
		}
		// No controller, or not the active one any more.
		wait := time.NewTimer(100 * time.Millisecond)
		select {
		case <-changed:
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return nil, fmt.Errorf("no active controller answered within request.timeout.ms: %w", kerr.RequestTimedOut)
		}
		wait.Stop()
	}
}

// retriable tells a connection that could not be made, which says that nothing happened.
func retriable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func (f *Forwarder) unwrap(ctx context.Context, rq *api.Request, env *kmsg.EnvelopeResponse) (resp kmsg.Response, retry bool, err error) {
	switch env.ErrorCode {
	case 0:
	case kerr.NotController.Code:
		return nil, true, nil
	case kerr.UnsupportedVersion.Code:
		return nil, false, ErrUnsupported
	default:
		return nil, false, kerr.UnknownServerError
	}
	resp = rq.Body.ResponseKind()
	body := env.ResponseData
	skip := 4
	if wire.ResponseFlexible(resp) {
		skip++
	}
	if len(body) < skip {
		return nil, false, kerr.UnknownServerError
	}
	if err := resp.ReadFrom(body[skip:]); err != nil {
		return nil, false, fmt.Errorf("reading the controller's answer: %w", err)
	}
	return resp, false, f.opts.CatchUp(ctx)
}

func encode(rq *api.Request) []byte {
	h := rq.Header
	h.Key, h.Version = rq.Body.Key(), rq.Body.GetVersion()
	return rq.Body.AppendTo(wire.AppendHeader(nil, h, rq.Body.IsFlexible()))
}

// encodePrincipal writes DefaultPrincipalData v0.
func encodePrincipal(p string) []byte {
	typ, name, ok := strings.Cut(p, ":")
	if !ok {
		typ, name = "User", p
	}
	b := []byte{0, 0}
	for _, s := range []string{typ, name} {
		b = binary.AppendUvarint(b, uint64(len(s))+1)
		b = append(b, s...)
	}
	return append(b, 0, 0) // tokenAuthenticated false, no tags
}

func decodePrincipal(b []byte) (string, error) {
	bad := kerr.PrincipalDeserializationFailure
	if len(b) < 2 {
		return "", bad
	}
	b = b[2:]
	var parts [2]string
	for i := range parts {
		n, k := binary.Uvarint(b)
		if k <= 0 || n < 1 || n-1 > uint64(len(b)-k) {
			return "", bad
		}
		parts[i] = string(b[k : k+int(n-1)])
		b = b[k+int(n-1):]
	}
	return parts[0] + ":" + parts[1], nil
}

func address(host string) []byte {
	ip := net.ParseIP(host)
	if v4 := ip.To4(); v4 != nil {
		return v4
	}
	if ip != nil {
		return ip
	}
	return []byte{0, 0, 0, 0}
}

// Open is the controller's end: it unpacks an Envelope into the request it holds, in the
// original caller's name, has it handled, and packs the answer.
func Open(registry *api.Registry, forwardable func(key int16) bool) api.Handler {
	return func(ctx api.Context, rq *api.Request) api.Reply {
		env := rq.Body.(*kmsg.EnvelopeRequest)
		resp := env.ResponseKind().(*kmsg.EnvelopeResponse)
		inner, a, err := open(registry, forwardable, rq, env)
		if err != nil {
			resp.ErrorCode = api.Code(err)
			return api.Done(resp)
		}
		reply := a.Handle(ctx, inner)
		if reply.Close != nil {
			resp.ErrorCode = api.Code(reply.Close)
			return api.Done(resp)
		}
		body, ok := reply.Body.(kmsg.Response)
		if !ok {
			reply.Release()
			resp.ErrorCode = kerr.UnknownServerError.Code
			return api.Done(resp)
		}
		resp.ResponseData = body.AppendTo(wire.AppendResponseHeader(nil, inner.CorrelationID, inner.Key, body.IsFlexible()))
		return api.Done(resp)
	}
}

func open(registry *api.Registry, forwardable func(int16) bool, rq *api.Request, env *kmsg.EnvelopeRequest) (*api.Request, *api.API, error) {
	principal, err := decodePrincipal(env.RequestPrincipal)
	if err != nil {
		return nil, nil, err
	}
	h, body, err := wire.ParseHeader(env.RequestData, api.Flexible)
	if err != nil {
		return nil, nil, kerr.UnsupportedVersion
	}
	a := registry.Get(h.Key)
	if a == nil || !forwardable(h.Key) {
		return nil, nil, kerr.InvalidRequest
	}
	if h.Version < a.Min || h.Version > a.Max {
		return nil, nil, kerr.UnsupportedVersion
	}
	inner := &api.Request{Peer: rq.Peer, Header: h, Received: rq.Received, Forwarded: true}
	inner.Principal, inner.Host = principal, net.IP(env.ClientHostAddress).String()
	inner.Body = kmsg.RequestForKey(h.Key)
	inner.Body.SetVersion(h.Version)
	if err := inner.Body.ReadFrom(body); err != nil {
		return nil, nil, kerr.UnsupportedVersion
	}
	return inner, a, nil
}
