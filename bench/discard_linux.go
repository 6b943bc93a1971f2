package main

import (
	"io"
	"net"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// discard drops n bytes inside the kernel, so that what is consumed is not copied once more by the generator.
func discard(c *net.TCPConn, n int, scratch []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	// MSG_TRUNC on TCP takes bytes off the queue without writing to the buffer, which only says how many.
	for n > 0 {
		var got int
		var failed error
		if err := raw.Read(func(fd uintptr) bool {
			got, _, failed = syscall.Recvfrom(int(fd), scratch[:min(n, len(scratch))], syscall.MSG_TRUNC)
			return failed != syscall.EAGAIN
		}); err != nil {
			return err
		}
		switch {
		case failed == syscall.EINTR:
		case failed != nil:
			return failed
		case got == 0:
			return io.ErrUnexpectedEOF
		}
		n -= max(got, 0)
	}
	return nil
}

// pacer gives the calling goroutine a thread that sleeps to a few microseconds.
func pacer() (sleep func(time.Duration), done func()) {
	runtime.LockOSThread()
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return func(d time.Duration) {
		ts := unix.NsecToTimespec(int64(d))
		unix.Nanosleep(&ts, nil)
	}, runtime.UnlockOSThread
}

// flushDisks waits for what others wrote, so that a turn does not pay for the turn before it.
func flushDisks() { unix.Sync() }

// backMemory touches free memory and gives it back, so that the page cache a load fills is not what the host of a virtual
// machine has to find first. Without memory to spare it does nothing.
func backMemory(bytes int64) {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil || bytes > int64(uint64(i.Freeram)*uint64(i.Unit)/2) {
		return
	}
	if m, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err == nil {
		unix.Munmap(m)
	}
}
