package api

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/wire"
)

// Anonymous is the principal of connections without authentication.
const Anonymous = "User:ANONYMOUS"

// Peer is the other end of a connection, as every handler sees it.
type Peer struct {
	Principal string // "User:ANONYMOUS" without authentication
	Host      string // the client's IP address
	Listener  string // name of the listener that it came in on
	Dialled   string // HOST:PORT of our side, as the client dialled it
	Addr      string // HOST:PORT of the client's side
	Software  string // name and version that ApiVersions v3+ told, "" before
}

// Request is one request with its caller. Handlers get it decoded, its version set.
type Request struct {
	Peer
	wire.Header
	Body      kmsg.Request
	Received  time.Time
	Forwarded bool // came through an Envelope; the Peer is the original caller's
}

// Context carries the request's end: the connection closed or the server stopping.
type Context = context.Context

// Body is an encoded answer; every kmsg.Response is one.
type Body interface {
	AppendTo(dst []byte) []byte
}

// Reply is what a handler gives back.
type Reply struct {
	Body Body
	// Fetch is set instead of Body by Fetch, whose records stay in files.
	Fetch *wire.FetchResponse
	// Later is set instead of both by a Produce whose place is fixed but whose answer
	// waits: the connection reads on, and the answer keeps its turn. It returns when the
	// answer is there or ctx ends.
	Later func(ctx Context) Body
	// None is set where no answer may be sent (acks=0).
	None bool
	// Close asks for the connection to be closed instead of an answer, and says why.
	Close error
}

// Release gives back what an unsent reply pins.
func (r *Reply) Release() {
	if r.Fetch != nil {
		r.Fetch.Release()
	}
}

// Done wraps a kmsg answer.
func Done(b Body) Reply { return Reply{Body: b} }

// Handler serves one API.
type Handler func(ctx Context, rq *Request) Reply

// Kind says which listeners serve an API.
type Kind int8

const (
	OnBroker     Kind = 1
	OnController Kind = 2
	OnBoth       Kind = OnBroker | OnController
)

// API is one registered API.
type API struct {
	Key      int16
	Min, Max int16
	// AdvertisedMin is what ApiVersions shows as lowest where it differs from Min:
	// Produce shows 0 for old librdkafka (KAFKA-18659).
	AdvertisedMin int16
	// Aliases says that the handler keeps nothing of the request's bytes after the reply
	// (after its first stage, for Produce), so that the frame's memory is used again.
	Aliases bool
	Handle  Handler
	// Unsupported answers versions outside the range; nil closes the connection. The
	// request comes without a body. Only ApiVersions has it (KIP-511).
	Unsupported Handler
}

// Name is the API's name in Kafka.
func (a *API) Name() string { return kmsg.NameForKey(a.Key) }

// Registry holds the APIs of one kind of listener.
type Registry struct {
	apis [maxKey]*API
}

const maxKey = 128

// Add registers an API; twice is a programming error.
func (r *Registry) Add(a API) {
	if a.Key < 0 || a.Key >= maxKey || r.apis[a.Key] != nil {
		panic(fmt.Sprintf("api: key %d registered twice or out of range", a.Key))
	}
	if a.AdvertisedMin == 0 && a.Key != int16(kmsg.Produce) {
		a.AdvertisedMin = a.Min
	}
	r.apis[a.Key] = &a
}

// Get finds an API, nil if it is not served here.
func (r *Registry) Get(key int16) *API {
	if key < 0 || key >= maxKey {
		return nil
	}
	return r.apis[key]
}

// All lists the registered APIs by key.
func (r *Registry) All() []*API {
	var out []*API
	for _, a := range r.apis {
		if a != nil {
			out = append(out, a)
		}
	}
	return out
}

// Flexible reports whether a request of this key and version has a v2 header.
func Flexible(key, version int16) bool {
	if key < 0 || key >= maxKey || flexibleFrom[key] < 0 {
		return false
	}
	return version >= flexibleFrom[key]
}

var flexibleFrom = func() (t [maxKey]int16) {
	for k := range t {
		t[k] = -1
		rq := kmsg.RequestForKey(int16(k))
		if rq == nil {
			continue
		}
		for v := int16(0); v <= rq.MaxVersion(); v++ {
			rq.SetVersion(v)
			if rq.IsFlexible() {
				t[k] = v
				break
			}
		}
	}
	return t
}()
