package oracle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a server that can be started again and again over the same data: Kafka or Runnel.
type Process struct {
	Addr string // where clients connect
	Dir  string // holds data and log
	Data string // log.dirs
	Log  string // what the process printed, over all its starts

	command func() *exec.Cmd
	ready   string // a line with this is printed when the server serves
	cmd     *exec.Cmd
	ended   chan struct{}
	err     error // of Wait; read after ended
}

// Start runs the process and returns when it serves.
func (p *Process) Start(ctx context.Context) error {
	if err := p.Launch(); err != nil {
		return err
	}
	return p.AwaitReady(ctx)
}

// Launch runs the process and does not wait for it.
func (p *Process) Launch() error {
	if p.cmd != nil {
		return errors.New("already running")
	}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := p.command()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	p.cmd, p.ended = cmd, ended
	go func() {
		p.err = cmd.Wait()
		close(ended)
	}()
	return nil
}

// AwaitReady waits until the process says that it serves.
func (p *Process) AwaitReady(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(p.Log)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(p.ready)) {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.ended:
			p.cmd = nil
			return fmt.Errorf("ended before it served (%v):\n%s", p.err, tail(text, 2000))
		case <-ctx.Done():
			return fmt.Errorf("does not serve yet: %w\n%s", ctx.Err(), tail(text, 2000))
		}
	}
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// Pid is the process id, 0 when it does not run.
func (p *Process) Pid() int {
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// Ended is closed when the running process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends it with SIGKILL.
func (p *Process) Kill() {
	if p.cmd == nil {
		return
	}
	p.cmd.Process.Kill()
	<-p.ended
	p.cmd = nil
}

// Stop ends it with SIGTERM, and with SIGKILL once ctx is done; the error says how it ended. A JVM reports SIGTERM as
// exit status 143, which is a clean stop.
func (p *Process) Stop(ctx context.Context) error {
	if p.cmd == nil {
		return nil
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("did not stop: %w", ctx.Err())
	}
	p.cmd = nil
	var exit *exec.ExitError
	if errors.As(p.err, &exit) && exit.ExitCode() == 143 {
		return nil
	}
	return p.err
}

// FreePorts finds ports of loopback that nobody listens on.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}
