package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"runnel/internal/kit/vfs"
)

// Env is everything of the process that commands touch, and the flags all of them share.
type Env struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string
	FS     vfs.FS
	Now    func() time.Time

	// StdinTerminal and StderrTerminal say whether a person is there to answer a prompt
	// or to see progress.
	StdinTerminal, StderrTerminal bool

	bootstrap string
	timeout   time.Duration
	output    string
	quiet     bool
}

// NewEnv is the process's own environment around the three streams.
func NewEnv(stdin io.Reader, stdout, stderr io.Writer) *Env {
	return &Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Getenv: os.Getenv, FS: vfs.OS{}, Now: time.Now,
		StdinTerminal: isTerminal(stdin), StderrTerminal: isTerminal(stderr)}
}

// isTerminal takes a character device that is not the null device for a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// say writes a remark that is not the command's result.
func (e *Env) say(format string, args ...any) {
	if !e.quiet {
		fmt.Fprintf(e.Stderr, format+"\n", args...)
	}
}

// confirm asks before something is destroyed. Without a terminal only --yes will do.
func (e *Env) confirm(yes bool, question string, args ...any) error {
	if yes {
		return nil
	}
	text := fmt.Sprintf(question, args...)
	if !e.StdinTerminal {
		return refused("%s: not confirmed, and stdin is no terminal to ask on", text).hint("add --yes to go on without a question")
	}
	fmt.Fprintf(e.Stderr, "%s? Type yes to go on: ", text)
	line, _ := bufio.NewReader(e.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return nil
	}
	return refused("not confirmed; nothing was changed").hint("answer yes, or add --yes")
}

// progress shows how far long work has come, at most a few times a second.
type progress struct {
	env  *Env
	what string
	last time.Time
	used bool
}

func (p *progress) at(done, total int64) {
	if !p.env.StderrTerminal || p.env.quiet {
		return
	}
	now := p.env.Now()
	if now.Sub(p.last) < 200*time.Millisecond {
		return
	}
	p.last, p.used = now, true
	if total > 0 {
		fmt.Fprintf(p.env.Stderr, "\r%s: %d of %d (%d%%) ", p.what, done, total, done*100/total)
	} else {
		fmt.Fprintf(p.env.Stderr, "\r%s: %d ", p.what, done)
	}
}

func (p *progress) end() {
	if p.used {
		fmt.Fprint(p.env.Stderr, "\r\033[K")
	}
}
