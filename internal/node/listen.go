package node

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/meta/metarec"
	"runnel/internal/meta/quorum"
	"runnel/internal/serve/api"
	"runnel/internal/serve/server"
)

// bound is a listener that has its port.
type bound struct {
	config.Listener
	net net.Listener
}

// bind takes all ports before anything else is touched.
func (n *Node) bind() error {
	for _, l := range n.conf.Listeners {
		nl, err := n.opts.Listen(l.Addr())
		if err != nil {
			n.closeListeners()
			return fmt.Errorf("listener %s cannot listen on %s (key listeners): %w; stop what uses the port or choose another", l.Name, l.Addr(), err)
		}
		if _, port, err := net.SplitHostPort(nl.Addr().String()); err == nil && l.Port == 0 {
			l.Port, _ = strconv.Atoi(port)
		}
		n.bound = append(n.bound, bound{l, nl})
	}
	return nil
}

func (n *Node) closeListeners() {
	for _, b := range n.bound {
		b.net.Close()
	}
}

// Addr is where a listener listens, "" if there is none of that name.
func (n *Node) Addr(name string) string {
	for _, b := range n.bound {
		if b.Name == name {
			return b.net.Addr().String()
		}
	}
	return ""
}

// dialable is a host that others can dial: never the wildcard.
func dialable(host string) string {
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return hostName()
	}
	return host
}

// advertised is what this broker registers: the configured addresses, with the ports
// that the system chose where 0 was configured.
func (n *Node) advertised() []metarec.Endpoint {
	var out []metarec.Endpoint
	for _, a := range n.conf.Advertised {
		port := a.Port
		for _, b := range n.bound {
			if b.Name == a.Name && port == 0 {
				port = b.Port
			}
		}
		out = append(out, metarec.Endpoint{Name: a.Name, Host: dialable(a.Host), Port: uint16(port), SecurityProtocol: protocolID(a.Protocol)})
	}
	return out
}

func protocolID(name string) int16 {
	for i, p := range []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"} {
		if p == name {
			return int16(i)
		}
	}
	return 0
}

// controllerEndpoints are this node's controller listeners, the default one first.
func (n *Node) controllerEndpoints() []quorum.Endpoint {
	var out []quorum.Endpoint
	for _, name := range n.conf.ControllerListeners {
		for _, b := range n.bound {
			if b.Name == name {
				out = append(out, quorum.Endpoint{Name: name, Host: dialable(b.Host), Port: uint16(b.Port)})
			}
		}
	}
	return out
}

// voters are the static voters; a port 0 of this node's own entry is the bound one.
func (n *Node) voters() quorum.VoterSet {
	var list []quorum.Voter
	for _, v := range n.conf.Voters {
		port := v.Port
		if v.ID == n.conf.NodeID && port == 0 {
			for _, e := range n.controllerEndpoints() {
				port = int(e.Port)
			}
		}
		list = append(list, quorum.Voter{VoterID: v.ID, Endpoints: []quorum.Endpoint{{Name: n.conf.ControllerListeners[0], Host: v.Host, Port: uint16(port)}}})
	}
	set, err := quorum.NewVoterSet(list...)
	if err != nil {
		panic("node: voters that the configuration check let through: " + err.Error())
	}
	return set
}

// limits are the connection limits of the configuration in force.
func (n *Node) limits() server.Limits {
	l := n.layers()
	ms := func(key string) time.Duration { return msOf(l, key) }
	out := server.Limits{
		MaxRequestBytes: int(l.Int("socket.request.max.bytes")), MaxConnections: int(l.Int("max.connections")),
		MaxPerIP: int(l.Int("max.connections.per.ip")), Idle: ms("connections.max.idle.ms"), Write: ms("runnel.write.timeout.ms"),
		PerIPOverrides: map[string]int{},
	}
	for _, item := range l.List("max.connections.per.ip.overrides") {
		if host, count, err := config.SplitHostPort(item); err == nil {
			out.PerIPOverrides[host] = count
		}
	}
	// The kernel tunes buffers well by itself: they are set only where the file says so.
	if _, src, _ := l.Lookup("socket.send.buffer.bytes"); src == config.SourceStatic {
		out.SendBuf = int(l.Int("socket.send.buffer.bytes"))
	}
	if _, src, _ := l.Lookup("socket.receive.buffer.bytes"); src == config.SourceStatic {
		out.RecvBuf = int(l.Int("socket.receive.buffer.bytes"))
	}
	return out
}

// newServers makes a server for each bound listener.
func (n *Node) newServers(broker, controller *api.Registry) {
	budget := server.NewBudget(n.memoryBudget())
	for _, b := range n.bound {
		r := broker
		if n.conf.IsController(b.Name) {
			r = controller
		}
		if r == nil {
			continue
		}
		n.servers = append(n.servers, server.New(server.Options{
			Name: b.Name, Listener: b.net, Registry: r, Limits: n.limits(), Budget: budget, Log: n.opts.Log,
		}))
	}
}

func (n *Node) memoryBudget() int64 {
	l := n.layers()
	if q := l.Int("queued.max.request.bytes"); q > 0 {
		return q
	}
	return l.Int("runnel.request.memory.bytes")
}

// serve runs the servers of one kind of listener.
func (n *Node) serve(controller bool) {
	for _, s := range n.servers {
		if n.conf.IsController(s.Name()) != controller {
			continue
		}
		n.tasks.Go(func() {
			if err := s.Serve(); err != nil {
				n.fatal(fmt.Errorf("listener %s: %w", s.Name(), err))
			}
		})
	}
}
