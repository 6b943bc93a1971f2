package compare

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// patience is how long an answer may take before it counts as none.
const patience = 15 * time.Second

// How a request ended, beside "answered".
const (
	answered    = "answered"
	closed      = "closed"      // the connection, without an answer
	silent      = "silent"      // no answer in time
	waiting     = "waiting"     // no answer yet, as looked for
	undecodable = "undecodable" // an answer that its schema does not explain
	misnumbered = "misnumbered" // an answer to another request
)

// wire is a connection that is dialled when needed, and again after it was closed.
type wire struct {
	addr   string
	client string
	conn   net.Conn
	number int32
}

func (w *wire) dial() error {
	if w.conn != nil {
		return nil
	}
	c, err := net.DialTimeout("tcp", w.addr, 5*time.Second)
	if err != nil {
		return err
	}
	w.conn = c
	return nil
}

func (w *wire) close() {
	if w.conn != nil {
		w.conn.Close()
		w.conn = nil
	}
}

// encode gives the whole frame of a request.
func encode(req kmsg.Request, v int16, number int32, client string) []byte {
	req.SetVersion(v)
	b := make([]byte, 4, 256)
	b = binary.BigEndian.AppendUint16(b, uint16(req.Key()))
	b = binary.BigEndian.AppendUint16(b, uint16(v))
	b = binary.BigEndian.AppendUint32(b, uint32(number))
	b = binary.BigEndian.AppendUint16(b, uint16(len(client)))
	b = append(b, client...)
	if req.IsFlexible() {
		b = append(b, 0)
	}
	b = req.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (w *wire) write(b []byte) error {
	if err := w.dial(); err != nil {
		return err
	}
	w.conn.SetWriteDeadline(time.Now().Add(patience))
	w.conn.Write(b) // that the other side closed shows in the read
	return nil
}

func (w *wire) send(req kmsg.Request, v int16) (int32, error) {
	w.number++
	return w.number, w.write(encode(req, v, w.number, w.client))
}

// reply is what came of a request.
type reply struct {
	how  string
	resp kmsg.Response
	// note says what is odd about the answer's bytes.
	note string
	took time.Duration
}

func (w *wire) frame(d time.Duration) ([]byte, string) {
	w.conn.SetReadDeadline(time.Now().Add(d))
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		var ne net.Error
		if errors.As(err, &ne) && ne.Timeout() {
			return nil, silent
		}
		return nil, closed
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > 1<<28 {
		return nil, undecodable
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(w.conn, b); err != nil {
		return nil, closed
	}
	return b, answered
}

func (w *wire) receive(req kmsg.Request, v int16, number int32) reply {
	start := time.Now()
	b, how := w.frame(patience)
	r := reply{how: how, took: time.Since(start)}
	if how == answered && int32(binary.BigEndian.Uint32(b)) != number {
		r.how = misnumbered
	}
	if r.how != answered {
		w.close()
		return r
	}
	w.decode(&r, req, v, b[4:])
	return r
}

func (w *wire) decode(r *reply, req kmsg.Request, v int16, b []byte) {
	resp := req.ResponseKind()
	resp.SetVersion(v)
	isVersions := req.Key() == int16(kmsg.ApiVersions)
	if resp.IsFlexible() && !isVersions {
		if len(b) == 0 || b[0] != 0 {
			r.how, r.note = undecodable, "tags in the header"
			return
		}
		b = b[1:]
	}
	if isVersions && v > 0 && len(b) > 1 && b[0] == 0 && b[1] == 35 {
		resp.SetVersion(0)
		r.note = "in version 0"
	}
	if err := resp.ReadFrom(b); err != nil {
		r.how, r.note = undecodable, err.Error()
		return
	}
	r.resp = resp
	if again := resp.AppendTo(nil); string(again) != string(b) {
		r.note = fmt.Sprintf("%d bytes where %d would do", len(b), len(again))
	}
}

// quietFor says whether nothing arrives for d.
func (w *wire) quietFor(d time.Duration) bool {
	w.conn.SetReadDeadline(time.Now().Add(d))
	var one [1]byte
	n, err := w.conn.Read(one[:])
	if n > 0 {
		w.conn = &pushedBack{w.conn, one[:]}
	}
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// pushedBack is a connection whose first bytes were read already.
type pushedBack struct {
	net.Conn
	first []byte
}

func (p *pushedBack) Read(b []byte) (int, error) {
	if len(p.first) == 0 {
		return p.Conn.Read(b)
	}
	n := copy(b, p.first)
	p.first = p.first[n:]
	return n, nil
}
