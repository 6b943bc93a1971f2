package oracle

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	code := m.Run()
	RemoveBuild()
	os.Exit(code)
}

// A Runnel process serves, survives kill -9, stops cleanly on SIGTERM, and /proc tells of it.
func TestRunnelProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := StartRunnel(ctx, RunnelOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	dial(t, p.Addr)
	if u, err := p.Usage(); err == nil && (u.RSS < 1<<20 || u.PeakRSS < u.RSS) {
		t.Errorf("usage %+v of a running server", u)
	}
	p.Kill()
	if _, err := net.Dial("tcp", p.Addr); err == nil {
		t.Error("still listens after Kill")
	}
	if err := p.Start(ctx); err != nil {
		t.Fatal(err)
	}
	dial(t, p.Addr)
	if err := p.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p.Data, ".kafka_cleanshutdown")); err != nil {
		t.Error(err)
	}
}

// A server that ends instead of serving says why.
func TestRefusedStart(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs a server")
	}
	if _, err := StartRunnel(t.Context(), RunnelOptions{Dir: t.TempDir(), Set: []string{"no.such.key=1"}}); err == nil {
		t.Fatal("started with an unknown key")
	}
}

func TestClusterProperties(t *testing.T) {
	got := string(properties(ClusterOptions{Nodes: 2, Set: []string{"a=b"}}, 2, "d", []int{1, 2, 3, 4}))
	want := `process.roles=broker,controller
node.id=2
controller.quorum.voters=1@127.0.0.1:3,2@127.0.0.1:4
listeners=PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:4
`
	if len(got) < len(want) || got[:len(want)] != want {
		t.Errorf("got\n%s", got)
	}
}

func dial(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}
