package forward

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/serve/api"
	"runnel/internal/wire"
)

// through joins both ends: what a broker sends is opened by the controller's handler.
type through struct {
	open  api.Handler
	calls int
	fail  []error
}

func (p *through) Request(ctx context.Context, _ string, rq kmsg.Request) (kmsg.Response, error) {
	p.calls++
	if len(p.fail) > 0 {
		err := p.fail[0]
		p.fail = p.fail[1:]
		if err != nil {
			return nil, err
		}
	}
	reply := p.open(ctx, &api.Request{Peer: api.Peer{Principal: "User:broker", Host: "10.0.0.9", Listener: "CONTROLLER"}, Body: rq})
	resp := rq.ResponseKind()
	return resp, resp.ReadFrom(reply.Body.AppendTo(nil))
}

func setup(handle api.Handler) (*Forwarder, *through) {
	r := &api.Registry{}
	r.Add(api.API{Key: int16(kmsg.CreateTopics), Min: 2, Max: 7, Handle: handle})
	r.Add(api.API{Key: int16(kmsg.Metadata), Min: 0, Max: 13, Handle: handle})
	p := &through{open: Open(r, func(key int16) bool { return key == int16(kmsg.CreateTopics) })}
	never := make(chan struct{})
	return New(Options{
		Peers: p, Active: func() (string, <-chan struct{}, bool) { return "controller:1", never, true },
		CatchUp: func(context.Context) error { return nil }, Timeout: 10 * time.Second,
	}), p
}

func createTopics(version int16) *api.Request {
	body := kmsg.NewPtrCreateTopicsRequest()
	body.Version = version
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic = "t"
	body.Topics = append(body.Topics, t)
	return &api.Request{Peer: api.Peer{Principal: "User:alice", Host: "192.168.7.5"}, Header: wire.Header{CorrelationID: 7, ClientID: "app"}, Body: body}
}

// The controller sees the caller's identity, not the broker's, in every version.
func TestTheCallersIdentityArrives(t *testing.T) {
	for v := int16(2); v <= 7; v++ {
		var seen *api.Request
		f, _ := setup(func(_ api.Context, rq *api.Request) api.Reply {
			seen = rq
			resp := rq.Body.ResponseKind().(*kmsg.CreateTopicsResponse)
			o := kmsg.NewCreateTopicsResponseTopic()
			o.Topic = "t"
			resp.Topics = append(resp.Topics, o)
			return api.Done(resp)
		})
		resp, err := f.Forward(context.Background(), createTopics(v))
		if err != nil {
			t.Fatalf("v%d: %v", v, err)
		}
		if got := resp.(*kmsg.CreateTopicsResponse).Topics; len(got) != 1 || got[0].Topic != "t" {
			t.Errorf("v%d: %+v", v, got)
		}
		if seen.Principal != "User:alice" || seen.Host != "192.168.7.5" || seen.ClientID != "app" || !seen.Forwarded || seen.Version != v {
			t.Errorf("v%d: the controller saw %+v", v, seen)
		}
	}
}

// A controller that lost the lead is asked again; the client never sees NOT_CONTROLLER.
func TestControllersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 3
		f, p := setup(func(_ api.Context, rq *api.Request) api.Reply {
			if left--; left > 0 {
				return api.Reply{Close: kerr.NotController}
			}
			return api.Done(rq.Body.ResponseKind())
		})
		if _, err := f.Forward(context.Background(), createTopics(7)); err != nil || p.calls != 3 {
			t.Fatalf("%d calls, %v", p.calls, err)
		}
		// Nobody answers: a time-out, which clients may retry.
		f, _ = setup(func(api.Context, *api.Request) api.Reply { return api.Reply{Close: kerr.NotController} })
		began := time.Now()
		if _, err := f.Forward(context.Background(), createTopics(7)); !errors.Is(err, kerr.RequestTimedOut) || time.Since(began) != 10*time.Second {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
		// A connection that broke in the middle: nobody knows what happened, so no second try.
		f, p = setup(func(_ api.Context, rq *api.Request) api.Reply { return api.Done(rq.Body.ResponseKind()) })
		p.fail = []error{errors.New("connection reset")}
		if _, err := f.Forward(context.Background(), createTopics(7)); err == nil || p.calls != 1 {
			t.Fatalf("%d calls, %v", p.calls, err)
		}
	})
}

func TestWhatAnEnvelopeMayNotHold(t *testing.T) {
	f, _ := setup(func(_ api.Context, rq *api.Request) api.Reply { return api.Done(rq.Body.ResponseKind()) })
	notForwardable := createTopics(7)
	notForwardable.Body = kmsg.NewPtrMetadataRequest()
	if _, err := f.Forward(context.Background(), notForwardable); !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("metadata: %v", err)
	}
	old := createTopics(7)
	old.Body.SetVersion(1)
	if _, err := f.Forward(context.Background(), old); !errors.Is(err, ErrUnsupported) {
		t.Errorf("version 1: %v", err)
	}
}

func FuzzPrincipal(f *testing.F) {
	f.Add(encodePrincipal("User:alice"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePrincipal(b)
		if err != nil {
			return
		}
		if again, err := decodePrincipal(encodePrincipal(p)); err != nil || len(again) < len(p)-1 {
			t.Fatalf("%q became %q, %v", p, again, err)
		}
	})
}
