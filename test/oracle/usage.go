package oracle

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Usage is what the kernel says a process has cost so far. Linux only.
type Usage struct {
	User, System time.Duration // CPU time, all threads
	RSS          int64         // bytes resident now
	PeakRSS      int64
}

// CPU is user and system time together.
func (u Usage) CPU() time.Duration { return u.User + u.System }

// tick is the unit of CPU times in /proc, the same on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// Usage reads /proc.
func (p *Process) Usage() (Usage, error) { return UsageOf(p.Pid()) }

// UsageOf reads /proc of any process.
func UsageOf(pid int) (u Usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	// The name in parentheses may hold anything; the fields are counted from behind it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	u.User, u.System = time.Duration(user)*tick, time.Duration(system)*tick
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	u.RSS, u.PeakRSS = kilobytes(status, "VmRSS:"), kilobytes(status, "VmHWM:")
	return u, nil
}

func kilobytes(status []byte, field string) int64 {
	_, rest, _ := bytes.Cut(status, []byte(field))
	f := bytes.Fields(rest[:min(len(rest), 64)])
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(string(f[0]), 10, 64)
	return n << 10
}
