package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/record"
)

// bareCommand is the hidden first argument that makes this program the bare server.
const bareCommand = "serve-bare"

// bareProcess is this program run once more as the bare server.
type bareProcess struct {
	cmd  *exec.Cmd
	addr string
}

func startBare(dir string) (*bareProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	cmd := exec.Command(self, bareCommand, dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		cmd.Process.Kill()
		return nil, fmt.Errorf("the bare server did not start: %w", err)
	}
	return &bareProcess{cmd, strings.TrimSpace(addr)}, nil
}

func (p *bareProcess) pid() int { return p.cmd.Process.Pid }

func (p *bareProcess) stop() error {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	return nil
}

// serveBare answers this package's own loads and nothing else: it takes a frame, checks the CRC, writes the batch to a
// file and answers; or sends a piece of the file. No offsets, no checks of records, no metadata: what is left is what
// the kernel and one CRC cost.
func serveBare(dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	s := &bareServer{dir: dir, files: map[string]*bareFile{}}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if err := s.serve(c.(*net.TCPConn)); err != nil && err != io.EOF {
				fmt.Fprintln(os.Stderr, "bare:", err)
			}
		}()
	}
}

type bareServer struct {
	dir string

	mu    sync.Mutex
	files map[string]*bareFile
}

// bareFile is a partition: batches of one size and count, one behind the other.
type bareFile struct {
	f             *os.File
	size, records int64 // of each batch
	mu            sync.Mutex
	end           int64
}

func (s *bareServer) file(topic string, partition int32) (*bareFile, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("%s-%d", topic, partition)
	if f := s.files[name]; f != nil {
		return f, nil
	}
	f, err := os.Create(filepath.Join(s.dir, name))
	if err != nil {
		return nil, err
	}
	s.files[name] = &bareFile{f: f}
	return s.files[name], nil
}

// serve looks at a connection's first request as a whole. Those that follow differ in a few bytes only.
func (s *bareServer) serve(c *net.TCPConn) error {
	var size [4]byte
	in := bufio.NewReaderSize(c, 64<<10)
	var frame []byte
	var answer func(frame []byte) error
	for {
		if _, err := io.ReadFull(in, size[:]); err != nil {
			return err
		}
		n := int(be.Uint32(size[:]))
		if cap(frame) < n {
			frame = make([]byte, n)
		}
		frame = frame[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		if answer == nil {
			var err error
			if answer, err = s.learn(c, frame); err != nil {
				return err
			}
		}
		if err := answer(frame); err != nil {
			return err
		}
	}
}

// learn makes the answerer of a connection from its first request.
func (s *bareServer) learn(c *net.TCPConn, frame []byte) (func([]byte) error, error) {
	r := kbin.Reader{Src: frame}
	key, version := r.Int16(), r.Int16()
	r.Int32()
	r.NullableString()
	kmsg.SkipTags(&r)
	if err := r.Complete(); err != nil && len(r.Src) == 0 {
		return nil, err
	}
	switch key {
	case 0:
		q := kmsg.NewPtrProduceRequest()
		q.Version = version
		if err := q.ReadFrom(r.Src); err != nil {
			return nil, err
		}
		return s.produces(c, frame, q)
	case 1:
		q := kmsg.NewPtrFetchRequest()
		q.Version = version
		if err := q.ReadFrom(r.Src); err != nil {
			return nil, err
		}
		return s.fetches(c, frame, q)
	}
	return nil, fmt.Errorf("request %d is not of the loads", key)
}

// headed is an answer with its size and correlation id, both to be filled in, in front.
func headed(a kmsg.Response) []byte {
	out := a.AppendTo(make([]byte, 9))
	be.PutUint32(out, uint32(len(out)-4))
	return out
}

func (s *bareServer) produces(c *net.TCPConn, first []byte, q *kmsg.ProduceRequest) (func([]byte) error, error) {
	topic, part := q.Topics[0].Topic, q.Topics[0].Partitions[0]
	f, err := s.file(topic, part.Partition)
	if err != nil {
		return nil, err
	}
	batch := record.Batch(part.Records)
	from := len(first) - len(batch) - 3 // three empty tag sections end the request
	a := q.ResponseKind().(*kmsg.ProduceResponse)
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition = part.Partition
	t := kmsg.NewProduceResponseTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	a.Topics = append(a.Topics, t)
	out := headed(a)
	f.mu.Lock()
	f.size, f.records = int64(len(batch)), int64(batch.Count())
	f.mu.Unlock()
	return func(frame []byte) error {
		b := record.Batch(frame[from : len(frame)-3])
		if !b.ValidCRC() {
			return fmt.Errorf("a batch with a wrong CRC")
		}
		f.mu.Lock()
		_, err := f.f.WriteAt(b, f.end)
		f.end += int64(len(b))
		f.mu.Unlock()
		if err != nil {
			return err
		}
		copy(out[4:8], frame[4:8])
		_, err = c.Write(out)
		return err
	}, nil
}

func (s *bareServer) fetches(c *net.TCPConn, first []byte, q *kmsg.FetchRequest) (func([]byte) error, error) {
	topic, part := q.Topics[0].Topic, q.Topics[0].Partitions[0]
	f, err := s.file(topic, part.Partition)
	if err != nil {
		return nil, err
	}
	_, offsetAt := fetchFrame(topic, part.Partition, 0, 0, 0)
	offsetAt -= 4
	a := q.ResponseKind().(*kmsg.FetchResponse)
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = part.Partition
	t := kmsg.NewFetchResponseTopic()
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	a.Topics = append(a.Topics, t)
	head := headed(a)[:fetchHead(topic)]
	// The file is opened once for each connection: sendfile goes on from where the file's own offset is.
	own, err := os.Open(f.f.Name())
	if err != nil {
		return nil, err
	}
	return func(frame []byte) error {
		at := int64(be.Uint64(frame[offsetAt:])) / f.records * f.size
		f.mu.Lock()
		n := min(int64(part.PartitionMaxBytes), f.end-at)
		f.mu.Unlock()
		out := kbin.AppendUvarint(head, uint32(n+1))
		be.PutUint32(out, uint32(int64(len(out))-4+n+3))
		copy(out[4:8], frame[4:8])
		if _, err := c.Write(out); err != nil {
			return err
		}
		if _, err := own.Seek(at, io.SeekStart); err != nil {
			return err
		}
		if _, err := c.ReadFrom(io.LimitReader(own, n)); err != nil {
			return err
		}
		_, err := c.Write([]byte{0, 0, 0})
		return err
	}, nil
}
