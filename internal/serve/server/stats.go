package server

import (
	"sync/atomic"
	"time"
)

// Stats are one listener's counters; all fields may be read at any time.
type Stats struct {
	Accepted, Refused, Open atomic.Int64
	BytesIn, BytesOut       atomic.Int64
	Malformed               atomic.Int64
	APIs                    [128]APIStats
}

// APIStats are the counters of one API. Latency counts requests by the time from the
// whole frame read to the answer handed to the kernel.
type APIStats struct {
	Requests, Errors atomic.Int64
	TotalNanos       atomic.Int64
	Latency          [len(latencyBounds) + 1]atomic.Int64
}

// latencyBounds are the upper bounds of the latency classes.
var latencyBounds = [...]time.Duration{
	100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second,
}

// LatencyBounds gives the upper bounds of APIStats.Latency's classes but the last.
func LatencyBounds() []time.Duration { return latencyBounds[:] }

func newStats() *Stats { return &Stats{} }

func (s *Stats) observe(key int16, took time.Duration) {
	if key < 0 || int(key) >= len(s.APIs) {
		return
	}
	a := &s.APIs[key]
	a.Requests.Add(1)
	a.TotalNanos.Add(int64(took))
	i := 0
	for i < len(latencyBounds) && took > latencyBounds[i] {
		i++
	}
	a.Latency[i].Add(1)
}
