//go:build !linux

package main

import (
	"io"
	"net"
	"time"
)

func discard(c *net.TCPConn, n int, scratch []byte) error {
	for n > 0 {
		got, err := io.ReadFull(c, scratch[:min(n, len(scratch))])
		if err != nil {
			return err
		}
		n -= got
	}
	return nil
}

func pacer() (sleep func(time.Duration), done func()) { return time.Sleep, func() {} }

func flushDisks() {}

func backMemory(int64) {}
