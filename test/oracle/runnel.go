package oracle

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// RunnelOptions describe a lone Runnel node.
type RunnelOptions struct {
	Dir  string   // made if new; data that is there is taken as it is
	Port int      // of the broker listener; any free one if 0
	Set  []string // KEY=VALUE settings
	Env  []string // added to the environment
}

// Runnel describes a node that Start starts, with the defaults of a lone node but for its ports and directory.
func Runnel(ctx context.Context, o RunnelOptions) (*Process, error) {
	binary, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	ports, err := FreePorts(2)
	if err != nil {
		return nil, err
	}
	if o.Port != 0 {
		ports[0] = o.Port
	}
	p := &Process{
		Addr: fmt.Sprintf("127.0.0.1:%d", ports[0]), Dir: dir, Data: filepath.Join(dir, "data"),
		Log: filepath.Join(dir, "server.log"), ready: "msg=serving",
	}
	args := []string{
		"server", "--set", "log.dirs=" + p.Data,
		"--set", fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d", p.Addr, ports[1]),
	}
	for _, kv := range o.Set {
		args = append(args, "--set", kv)
	}
	p.command = func() *exec.Cmd {
		cmd := exec.Command(binary, args...)
		cmd.Env = append(os.Environ(), o.Env...)
		return cmd
	}
	return p, nil
}

// StartRunnel is Runnel and Start.
func StartRunnel(ctx context.Context, o RunnelOptions) (*Process, error) {
	p, err := Runnel(ctx, o)
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

var build struct {
	sync.Once
	dir, path string
	err       error
}

// Build makes the runnel binary, once for this process; RUNNEL_BINARY names one to take instead. RemoveBuild deletes it.
func Build(ctx context.Context) (string, error) {
	build.Do(func() {
		if build.path = os.Getenv("RUNNEL_BINARY"); build.path != "" {
			return
		}
		if build.dir, build.err = os.MkdirTemp("", "runnel-build-"); build.err != nil {
			return
		}
		build.path = filepath.Join(build.dir, "runnel")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", build.path, "runnel/cmd/runnel")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("building runnel: %w\n%s", err, out)
		}
	})
	return build.path, build.err
}

// RemoveBuild deletes what Build made; for the end of TestMain or main.
func RemoveBuild() {
	if build.dir != "" {
		os.RemoveAll(build.dir)
	}
}
