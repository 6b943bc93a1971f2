package cli

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"path"
	"strconv"
	"strings"

	"github.com/magiconair/properties"
)

// baseOf is the offset in a segment file's name.
func baseOf(file string) int64 {
	stem, _, _ := strings.Cut(path.Base(file), ".")
	n, _ := strconv.ParseInt(stem, 10, 64)
	return n
}

// offsetIndex prints pairs of relative offset and file position. Zeros at the end are room
// that was set aside.
func (d *dump) offsetIndex(file string, data []byte) error {
	base, lastOffset, lastPos := baseOf(file), int32(-1), int32(-1)
	for at := 0; at+8 <= len(data); at += 8 {
		rel, pos := int32(binary.BigEndian.Uint32(data[at:])), int32(binary.BigEndian.Uint32(data[at+4:]))
		if at > 0 && rel == 0 && pos == 0 && allZero(data[at:]) {
			return nil
		}
		if rel < lastOffset || pos < lastPos || at > 0 && rel == lastOffset {
			if err := d.broken(file, int64(at), "offset %d at position %d does not follow offset %d at %d", base+int64(rel), pos, base+int64(lastOffset), lastPos); err != nil {
				return err
			}
		}
		lastOffset, lastPos = rel, pos
		if err := d.emit(file, newEntry("entry").add("offset", base+int64(rel)).add("position", pos)); err != nil {
			return err
		}
	}
	return d.remainder(file, len(data), 8)
}

func allZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

func (d *dump) remainder(file string, size, unit int) error {
	if size%unit == 0 {
		return nil
	}
	return d.broken(file, int64(size-size%unit), "%d bytes at the end are no whole entry of %d", size%unit, unit)
}

func (d *dump) timeIndex(file string, data []byte) error {
	base, lastTime, lastOffset := baseOf(file), int64(-1), int32(-1)
	for at := 0; at+12 <= len(data); at += 12 {
		ts, rel := int64(binary.BigEndian.Uint64(data[at:])), int32(binary.BigEndian.Uint32(data[at+8:]))
		if at > 0 && ts == 0 && rel == 0 && allZero(data[at:]) {
			return nil
		}
		if at > 0 && (ts < lastTime || rel < lastOffset) {
			if err := d.broken(file, int64(at), "timestamp %d does not follow %d", ts, lastTime); err != nil {
				return err
			}
		}
		lastTime, lastOffset = ts, rel
		if err := d.emit(file, newEntry("entry").add("timestamp", ts).add("offset", base+int64(rel))); err != nil {
			return err
		}
	}
	return d.remainder(file, len(data), 12)
}

func (d *dump) txnIndex(file string, data []byte) error {
	be := binary.BigEndian
	for at := 0; at+34 <= len(data); at += 34 {
		e := data[at:]
		if v := be.Uint16(e); v != 0 {
			return d.broken(file, int64(at), "version %d is not known", v)
		}
		err := d.emit(file, newEntry("aborted").add("producerId", int64(be.Uint64(e[2:]))).add("firstOffset", int64(be.Uint64(e[10:]))).
			add("lastOffset", int64(be.Uint64(e[18:]))).add("lastStableOffset", int64(be.Uint64(e[26:]))))
		if err != nil {
			return err
		}
	}
	return d.remainder(file, len(data), 34)
}

func (d *dump) producerSnapshot(file string, data []byte) error {
	be := binary.BigEndian
	if len(data) < 10 {
		return d.broken(file, 0, "%d bytes are no producer snapshot", len(data))
	}
	if v := be.Uint16(data); v != 1 {
		return d.broken(file, 0, "version %d is not known", v)
	}
	if want, got := be.Uint32(data[2:]), crc32.Checksum(data[6:], crc32.MakeTable(crc32.Castagnoli)); want != got {
		if err := d.broken(file, 2, "checksum is %08x, the content's is %08x", want, got); err != nil {
			return err
		}
	}
	n := int64(be.Uint32(data[6:]))
	if int64(len(data)-10) != n*46 {
		return d.broken(file, 6, "%d producers do not fit %d bytes", n, len(data)-10)
	}
	for e := data[10:]; len(e) > 0; e = e[46:] {
		last, delta := int64(be.Uint64(e[14:])), int64(int32(be.Uint32(e[22:])))
		out := newEntry("producer").add("producerId", int64(be.Uint64(e))).add("epoch", int16(be.Uint16(e[8:]))).
			add("lastSequence", int32(be.Uint32(e[10:]))).add("firstOffset", last-delta).add("lastOffset", last).add("timestamp", int64(be.Uint64(e[26:]))).
			add("coordinatorEpoch", int32(be.Uint32(e[34:]))).add("currentTxnFirstOffset", int64(be.Uint64(e[38:])))
		if last < 0 {
			out.fields[3].value = int64(-1)
		}
		if err := d.emit(file, out); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint prints a text checkpoint: version, count, lines.
func (d *dump) checkpoint(file, kind string, data []byte) error {
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	if len(lines) < 2 || lines[0] != "0" {
		return d.broken(file, 0, "line 1 is %.20q, want version 0", lines[0])
	}
	if n, err := strconv.Atoi(lines[1]); err != nil || n != len(lines)-2 {
		if err := d.broken(file, 2, "line 2 says %.20q entries, there are %d", lines[1], len(lines)-2); err != nil {
			return err
		}
	}
	for i, line := range lines[2:] {
		e, err := checkpointLine(kind, strings.Fields(line))
		if err != nil {
			if err := d.broken(file, int64(i+2), "line %d: %s", i+3, err); err != nil {
				return err
			}
			continue
		}
		if err := d.emit(file, e); err != nil {
			return err
		}
	}
	return nil
}

func checkpointLine(kind string, words []string) (*entry, error) {
	want := 3
	if kind == "epochs" {
		want = 2
	}
	if len(words) != want {
		return nil, fmt.Errorf("%q has %d words, want %d", strings.Join(words, " "), len(words), want)
	}
	nums := make([]int64, 0, 2)
	for _, w := range words[want-2:] {
		n, err := strconv.ParseInt(w, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is no number", w)
		}
		nums = append(nums, n)
	}
	if kind == "epochs" {
		return newEntry("epoch").add("epoch", nums[0]).add("startOffset", nums[1]), nil
	}
	return newEntry("offset").add("topic", words[0]).add("partition", nums[0]).add("offset", nums[1]), nil
}

func (d *dump) jsonFile(file string, data []byte) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	e := newEntry("state")
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return d.broken(file, 0, "not a JSON object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return d.broken(file, dec.InputOffset(), "%s", err)
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return d.broken(file, dec.InputOffset(), "%s", err)
		}
		e.add(fmt.Sprint(name), v)
	}
	return d.emit(file, e)
}

func (d *dump) properties(file string, data []byte) error {
	l := properties.Loader{Encoding: properties.ISO_8859_1, DisableExpansion: true}
	p, err := l.LoadBytes(data)
	if err != nil {
		return d.broken(file, 0, "%s", err)
	}
	e := newEntry("properties")
	for _, k := range p.Keys() {
		v, _ := p.Get(k)
		e.add(k, v)
	}
	return d.emit(file, e)
}
