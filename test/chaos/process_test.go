//go:build chaos

package chaos

import (
	"bytes"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is a Runnel process that keeps its ports and its directory over restarts.
type server struct {
	binary, dir      string
	addr, controller string
	cmd              *exec.Cmd
	exited           chan error
	log              *output
}

// output keeps the end of what the process says.
type output struct {
	sync.Mutex
	b bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.Lock()
	defer o.Unlock()
	return o.b.Write(p)
}

func (o *output) has(s string) bool {
	o.Lock()
	defer o.Unlock()
	return bytes.Contains(o.b.Bytes(), []byte(s))
}

func (o *output) String() string {
	o.Lock()
	defer o.Unlock()
	b := o.b.Bytes()
	return string(b[max(0, len(b)-4000):])
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "runnel")
	if out, err := exec.Command("go", "build", "-o", binary, "runnel/cmd/runnel").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start gives the time from process start to serving.
func (s *server) start() (time.Duration, error) {
	s.log = &output{}
	s.cmd = exec.Command(s.binary, "server",
		"--set", "log.dirs="+s.dir,
		"--set", "listeners=PLAINTEXT://"+s.addr+",CONTROLLER://"+s.controller,
		"--set", "controller.quorum.voters=1@"+s.controller,
		// Small segments, so that rolling, indexes and snapshots are hit as well.
		"--set", "log.segment.bytes=1048576",
		"--set", "offsets.topic.num.partitions=5",
		"--set", "log.flush.offset.checkpoint.interval.ms=500")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		return 0, err
	}
	s.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan error) { exited <- cmd.Wait() }(s.cmd, s.exited)
	for !s.log.has("msg=serving") {
		select {
		case err := <-s.exited:
			return 0, fmt.Errorf("the server refused to start: %v\n%s", err, s.log)
		case <-time.After(2 * time.Millisecond):
		}
		if time.Since(began) > 20*time.Second {
			return 0, fmt.Errorf("the server does not serve after 20 s\n%s", s.log)
		}
	}
	return time.Since(began), nil
}

func (s *server) kill() {
	s.cmd.Process.Signal(syscall.SIGKILL)
	<-s.exited
}
