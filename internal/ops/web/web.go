package web

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"runnel/internal/kit/config"
	"runnel/internal/node"
	"runnel/internal/repl/partition"
)

// Server is the running HTTP side; without runnel.http.listener it does nothing.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Source is what the pages read.
type Source interface{ Status() node.Status }

// Serve listens on runnel.http.listener, if that is set.
func Serve(n Source, conf *config.Server, log *slog.Logger) (*Server, error) {
	addr := conf.Layers.String("runnel.http.listener")
	if addr == "" {
		return &Server{}, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("runnel.http.listener=%s: cannot listen: %w", addr, err)
	}
	s := &Server{listener: l, http: &http.Server{
		Handler: Handler(n, conf.Layers.Bool("runnel.http.pprof")), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}
	go s.http.Serve(l)
	return s, nil
}

// Addr is where it listens, "" if it does not.
func (s *Server) Addr() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// Close ends it.
func (s *Server) Close() {
	if s.http != nil {
		s.http.Close()
	}
}

// Handler serves the pages.
func Handler(n Source, profiles bool) http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(n), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) { writeReady(w, n.Status()) })
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// readiness is the body of /ready.
type readiness struct {
	Ready    bool     `json:"ready"`
	NodeID   int32    `json:"node_id"`
	Problems []string `json:"problems,omitempty"`
}

// running is the broker's state when it serves (BrokerState 3).
const running = 3

// judge says what keeps a node from being ready. Offline partitions, offline and full
// directories are named but leave it ready as long as it serves others.
func judge(s node.Status) readiness {
	r := readiness{Ready: true, NodeID: s.NodeID}
	if s.BrokerState >= 0 && s.BrokerState != running {
		r.Ready = false
		r.Problems = append(r.Problems, fmt.Sprintf("the broker's state is %d, not running (%d)", s.BrokerState, running))
	}
	if s.Fenced {
		r.Ready = false
		r.Problems = append(r.Problems, "the broker is fenced")
	}
	if s.QuorumLeader < 0 {
		r.Ready = false
		r.Problems = append(r.Problems, "no leader of the metadata quorum is known")
	}
	for _, d := range s.Dirs {
		if d.Err != nil {
			r.Problems = append(r.Problems, fmt.Sprintf("log directory %s is offline: %v", d.Path, d.Err))
		}
		if d.Full {
			r.Problems = append(r.Problems, fmt.Sprintf("log directory %s is full: %d bytes are free, less than runnel.log.dir.min.free.bytes; appends are refused", d.Path, d.Space.Free))
		}
	}
	for _, p := range s.Partitions {
		if st := p.State(); st.Role == partition.Offline {
			r.Problems = append(r.Problems, fmt.Sprintf("partition %s is offline: %v", p.TP(), st.Err))
		}
	}
	return r
}

func writeReady(w http.ResponseWriter, s node.Status) {
	r := judge(s)
	w.Header().Set("Content-Type", "application/json")
	if !r.Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	json.NewEncoder(w).Encode(r)
}
