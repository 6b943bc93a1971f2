//go:build interop

package interop

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// journey runs a client's program. It says "journey done" when all it checked was right.
func journey(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	b := broker(t)
	cmd := exec.CommandContext(limited(t, 100*time.Second), name, append(args, b.Addr)...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil || !strings.Contains(out.String(), "journey done") {
		t.Errorf("%s: %v\n%s", args[0], err, out.String())
	}
}

const pythonPackages = "confluent-kafka kafka-python aiokafka cramjam python-snappy lz4 zstandard"

func TestPython(t *testing.T) {
	dir := cache(t, "python")
	python := filepath.Join(dir, "venv", "bin", "python")
	once(t, dir, pythonPackages,
		exec.Command("python3", "-m", "venv", filepath.Join(dir, "venv")),
		exec.Command(python, append([]string{"-m", "pip", "install", "--quiet"}, strings.Fields(pythonPackages)...)...))
	for _, client := range []string{"confluent", "kafka_python", "aio"} {
		t.Run(client, func(t *testing.T) {
			program, _ := filepath.Abs(filepath.Join("testdata", client+".py"))
			journey(t, dir, python, program)
		})
	}
}

const nodePackages = "kafkajs @platformatic/kafka"

func TestJavaScript(t *testing.T) {
	dir := cache(t, "node")
	install := exec.Command("npm", append([]string{"install", "--no-audit", "--no-fund", "--prefix", dir}, strings.Fields(nodePackages)...)...)
	once(t, dir, nodePackages, install)
	for _, client := range []string{"kafkajs", "platformatic"} {
		t.Run(client, func(t *testing.T) {
			// A module finds its imports beside itself.
			from, _ := filepath.Abs(filepath.Join("testdata", client+".mjs"))
			to := filepath.Join(dir, client+".mjs")
			run(t, exec.Command("cp", from, to), "")
			journey(t, dir, "node", to)
		})
	}
}
