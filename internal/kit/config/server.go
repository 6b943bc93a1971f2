package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"runnel/internal/kit/ids"
)

// Listener is one address to serve or to tell clients.
type Listener struct {
	Name     string // upper case
	Host     string
	Port     int
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

// Addr is HOST:PORT.
func (l Listener) Addr() string { return net.JoinHostPort(l.Host, strconv.Itoa(l.Port)) }

// Voter is one entry of controller.quorum.voters.
type Voter struct {
	ID   int32
	Host string
	Port int
}

// Server is a node's file, read and cross-checked: what must be known before anything
// runs. All other values are looked up in Layers.
type Server struct {
	NodeID              int32
	ClusterID           string // key cluster.id; empty if not given
	Broker, Controller  bool   // process.roles
	Listeners           []Listener
	Advertised          []Listener // brokers' listeners only
	ControllerListeners []string
	InterBroker         string // listener name
	Voters              []Voter
	Bootstrap           []string
	LogDirs             []string
	MetadataDir         string
	Layers              *Layers
}

// IsController reports the names in controller.listener.names.
func (s *Server) IsController(listener string) bool {
	return slices.Contains(s.ControllerListeners, listener)
}

// OnlyVoter reports a node that is its quorum all by itself.
func (s *Server) OnlyVoter() bool {
	return s.Controller && (len(s.Voters) == 0 || len(s.Voters) == 1 && s.Voters[0].ID == s.NodeID)
}

// Load cross-checks a node's properties, which Check has passed (KafkaConfig's rules).
func Load(p *Properties) (*Server, error) {
	r := reader{p: p, layers: &Layers{Static: p.Values}}
	s := &Server{Layers: r.layers, ClusterID: strings.TrimSpace(p.Values["cluster.id"])}
	r.identity(s)
	r.listeners(s)
	r.quorum(s)
	r.dirs(s)
	r.relations(s)
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

type reader struct {
	p      *Properties
	layers *Layers
	err    error
}

// fail keeps the first error.
func (r *reader) fail(key, rule string, args ...any) {
	if r.err == nil {
		r.err = &Error{Key: key, Value: r.p.Values[key], Rule: fmt.Sprintf(rule, args...), Source: r.p.From(key)}
	}
}

func (r *reader) has(key string) bool { _, ok := r.p.Values[key]; return ok }

func (r *reader) identity(s *Server) {
	roles := SplitList(r.p.Values["process.roles"])
	if len(roles) == 0 {
		r.fail("process.roles", "must be given: broker, controller, or broker,controller")
	}
	s.Broker, s.Controller = slices.Contains(roles, "broker"), slices.Contains(roles, "controller")
	node, haveNode := r.p.Values["node.id"]
	old, haveOld := r.p.Values["broker.id"]
	switch {
	case !haveNode && !haveOld:
		r.fail("node.id", "must be given: a number of at least 0, unique in the cluster")
	case haveNode && haveOld && strings.TrimSpace(node) != strings.TrimSpace(old):
		r.fail("broker.id", "contradicts node.id=%s; drop one of them", node)
	case !haveNode:
		node = old
	}
	n, err := strconv.ParseInt(strings.TrimSpace(node), 10, 32)
	if err == nil && n < 0 {
		r.fail("node.id", "must be at least 0")
	}
	s.NodeID = int32(n)
	if s.ClusterID != "" {
		if _, err := ids.ParseUUID(s.ClusterID); err != nil && len(s.ClusterID) > 64 {
			r.fail("cluster.id", "is longer than 64 characters")
		}
	}
}

func (r *reader) listeners(s *Server) {
	protocols := map[string]string{}
	for _, item := range SplitList(r.layers.String("listener.security.protocol.map")) {
		name, proto, ok := strings.Cut(item, ":")
		proto = strings.ToUpper(strings.TrimSpace(proto))
		if !ok || !slices.Contains([]string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, proto) {
			r.fail("listener.security.protocol.map", "must be a list of NAME:PROTOCOL with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; %q is not", item)
		}
		protocols[strings.ToUpper(strings.TrimSpace(name))] = proto
	}
	for _, n := range SplitList(r.p.Values["controller.listener.names"]) {
		s.ControllerListeners = append(s.ControllerListeners, strings.ToUpper(n))
		if _, ok := protocols[strings.ToUpper(n)]; !ok && !r.has("listener.security.protocol.map") {
			protocols[strings.ToUpper(n)] = "PLAINTEXT" // as Kafka: an unmapped controller listener is plaintext
		}
	}
	s.Listeners = r.parseListeners("listeners", r.layers.String("listeners"), protocols)
	for _, l := range s.Listeners {
		if l.Protocol != "PLAINTEXT" {
			r.fail("listeners", "listener %s uses %s; only PLAINTEXT is served in this version", l.Name, l.Protocol)
		}
	}
	if r.has("advertised.listeners") && strings.TrimSpace(r.p.Values["advertised.listeners"]) != "" {
		s.Advertised = r.parseListeners("advertised.listeners", r.p.Values["advertised.listeners"], protocols)
		for _, l := range s.Advertised {
			if isWildcard(l.Host) {
				r.fail("advertised.listeners", "must not advertise the wildcard address %q: clients cannot dial it", l.Host)
			}
			if !s.IsController(l.Name) && !slices.ContainsFunc(s.Listeners, func(o Listener) bool { return o.Name == l.Name }) {
				r.fail("advertised.listeners", "names %s, which is not in listeners", l.Name)
			}
		}
	} else {
		s.Advertised = slices.Clone(s.Listeners)
	}
	s.Advertised = slices.DeleteFunc(s.Advertised, func(l Listener) bool { return s.IsController(l.Name) })
	r.interBroker(s)
}

func (r *reader) interBroker(s *Server) {
	if !s.Broker {
		return
	}
	if r.has("inter.broker.listener.name") && r.has("security.inter.broker.protocol") {
		r.fail("inter.broker.listener.name", "excludes security.inter.broker.protocol; set one of them")
	}
	s.InterBroker = strings.ToUpper(r.layers.String("inter.broker.listener.name"))
	if s.InterBroker == "" {
		s.InterBroker = r.layers.String("security.inter.broker.protocol")
	}
	if !slices.ContainsFunc(s.Advertised, func(l Listener) bool { return l.Name == s.InterBroker }) {
		r.fail("inter.broker.listener.name", "listener %s is not in advertised.listeners", s.InterBroker)
	}
}

func (r *reader) parseListeners(key, text string, protocols map[string]string) []Listener {
	var out []Listener
	for _, item := range SplitList(text) {
		name, addr, ok := strings.Cut(item, "://")
		if !ok {
			r.fail(key, "must be a list of NAME://HOST:PORT; %q is not", item)
			continue
		}
		host, port, err := SplitHostPort(addr)
		if err != nil {
			r.fail(key, "must be a list of NAME://HOST:PORT: %v", err)
			continue
		}
		l := Listener{Name: strings.ToUpper(name), Host: host, Port: port}
		if l.Protocol, ok = protocols[l.Name]; !ok {
			r.fail(key, "no security protocol is known for listener %s; add it to listener.security.protocol.map", l.Name)
		}
		for _, o := range out {
			if o.Name == l.Name {
				r.fail(key, "has listener %s twice", l.Name)
			}
			if key == "listeners" && o.Port == l.Port && l.Port != 0 && o.Host == l.Host {
				r.fail(key, "has %s twice", addr)
			}
		}
		out = append(out, l)
	}
	return out
}

func isWildcard(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsUnspecified()
}

func (r *reader) quorum(s *Server) {
	for _, item := range SplitList(r.p.Values["controller.quorum.voters"]) {
		id, addr, _ := strings.Cut(item, "@")
		host, port, err := SplitHostPort(addr)
		n, perr := strconv.ParseInt(id, 10, 32)
		if err != nil || perr != nil {
			continue // the key's own check has refused it
		}
		s.Voters = append(s.Voters, Voter{int32(n), host, port})
	}
	s.Bootstrap = SplitList(r.p.Values["controller.quorum.bootstrap.servers"])
	if len(s.Voters) == 0 && len(s.Bootstrap) == 0 {
		r.fail("controller.quorum.voters", "or controller.quorum.bootstrap.servers must be given, so that the node finds its quorum")
	}
	if len(s.ControllerListeners) == 0 {
		r.fail("controller.listener.names", "must be given: the names of the controllers' listeners")
	}
	isVoter := slices.ContainsFunc(s.Voters, func(v Voter) bool { return v.ID == s.NodeID })
	if s.Controller {
		if len(s.Voters) > 0 && !isVoter {
			r.fail("controller.quorum.voters", "does not hold node.id=%d, though process.roles has controller", s.NodeID)
		}
		for _, n := range s.ControllerListeners {
			if !slices.ContainsFunc(s.Listeners, func(l Listener) bool { return l.Name == n }) {
				r.fail("controller.listener.names", "listener %s is not in listeners", n)
			}
		}
		return
	}
	if isVoter {
		r.fail("controller.quorum.voters", "holds node.id=%d, though process.roles is only broker", s.NodeID)
	}
	for _, l := range s.Listeners {
		if s.IsController(l.Name) {
			r.fail("listeners", "holds controller listener %s, though process.roles is only broker", l.Name)
		}
	}
}

func (r *reader) dirs(s *Server) {
	s.LogDirs = SplitList(r.layers.String("log.dirs"))
	if len(s.LogDirs) == 0 {
		r.fail("log.dirs", "must name at least one directory")
		return
	}
	s.MetadataDir = strings.TrimSpace(r.p.Values["metadata.log.dir"])
	if s.MetadataDir == "" {
		s.MetadataDir = s.LogDirs[0]
	}
}

// relations are KafkaConfig's checks of one value against another.
func (r *reader) relations(s *Server) {
	l := r.layers
	atMost := func(a, b string) {
		if l.Int(a) > l.Int(b) {
			r.fail(a, "must not be more than %s, which is %d", b, l.Int(b))
		}
	}
	if l.Int("log.roll.ms") < 1 {
		r.fail("log.roll.ms", "must be at least 1")
	}
	if l.Int("log.roll.jitter.ms") < 0 {
		r.fail("log.roll.jitter.ms", "must be at least 0")
	}
	if v := l.Int("log.retention.ms"); v == 0 {
		r.fail("log.retention.ms", "must be -1 (without limit) or at least 1")
	}
	atMost("replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
	atMost("replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
	atMost("group.min.session.timeout.ms", "group.max.session.timeout.ms")
	if q := l.Int("queued.max.request.bytes"); q > 0 && q < l.Int("socket.request.max.bytes") {
		r.fail("queued.max.request.bytes", "must be -1 or at least socket.request.max.bytes, which is %d", l.Int("socket.request.max.bytes"))
	}
	if idle := l.Int("connections.max.idle.ms"); idle > 0 && l.Int("connection.failed.authentication.delay.ms") >= idle {
		r.fail("connection.failed.authentication.delay.ms", "must be less than connections.max.idle.ms, which is %d", idle)
	}
	if l.Bool("remote.log.storage.system.enable") {
		r.fail("remote.log.storage.system.enable", "tiered storage is not part of this version")
	}
	if threads := max(l.Int("log.cleaner.threads"), 1); l.Int("log.cleaner.dedupe.buffer.size")/threads <= 1<<20 {
		r.fail("log.cleaner.dedupe.buffer.size", "must be more than 1048576 for each of the %d log.cleaner.threads", threads)
	}
}
