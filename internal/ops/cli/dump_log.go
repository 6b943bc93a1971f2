package cli

import (
	"encoding/binary"
	"io"
	"strings"

	"runnel/internal/kit/record"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/metarec"
)

// batchLimit bounds what one batch may claim, and what its records may grow to.
const batchLimit = 1 << 30

// batches prints a file of record batches: a segment or a metadata snapshot.
func (d *dump) batches(file string) error {
	f, err := d.env.FS.OpenFile(file, vfs.ReadOnly)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	show := progress{env: d.env, what: "reading " + file}
	defer show.end()
	decode := d.contents(file)
	head := make([]byte, record.HeaderSize)
	for at := int64(0); at < size; {
		if size-at < record.HeaderSize {
			return d.broken(file, at, "%d bytes at the end are no batch", size-at)
		}
		if _, err := f.ReadAt(head, at); err != nil && err != io.EOF {
			return err
		}
		if magic := head[16]; magic != 2 {
			if allZero(head) {
				return d.broken(file, at, "zeros to the end")
			}
			return d.broken(file, at, "magic %d: only batches of format 2 can be printed", magic)
		}
		n, err := record.HeaderBatchSize(head)
		if err != nil || n < record.HeaderSize || n > batchLimit || int64(n) > size-at {
			return d.broken(file, at, "a batch of %d bytes, where %d are left", n, size-at)
		}
		buf := make([]byte, n)
		if _, err := f.ReadAt(buf, at); err != nil && err != io.EOF {
			return err
		}
		b := record.Batch(buf)
		if err := d.batch(file, at, b, decode); err != nil {
			return err
		}
		at += int64(n)
		if d.env.output == "json" {
			show.at(at, size) // text on a terminal is its own progress
		}
	}
	return nil
}

func (d *dump) batch(file string, at int64, b record.Batch, decode string) error {
	e := newEntry("batch").add("baseOffset", b.BaseOffset()).add("lastOffset", b.LastOffset()).add("count", b.Count()).
		add("position", at).add("size", b.Size()).add("leaderEpoch", b.LeaderEpoch()).add("baseTimestamp", b.BaseTimestamp()).
		add("maxTimestamp", b.MaxTimestamp()).add("timestampType", timestampType(b)).add("compression", b.Codec().String())
	if b.ProducerID() >= 0 {
		e.add("producerId", b.ProducerID()).add("producerEpoch", b.ProducerEpoch()).add("baseSequence", b.BaseSequence())
	}
	if b.IsTransactional() {
		e.add("transactional", true)
	}
	if b.IsControl() {
		e.add("control", true)
	}
	if b.HasDeleteHorizon() {
		e.add("deleteHorizon", b.BaseTimestamp())
	}
	valid := b.ValidCRC()
	e.add("crc", b.StoredCRC()).add("valid", valid)
	if err := d.emit(file, e); err != nil {
		return err
	}
	if !valid {
		return d.broken(file, at, "checksum is %08x, the content's is %08x", b.StoredCRC(), b.ComputeCRC())
	}
	if !d.deep && decode == "bytes" && !b.IsControl() {
		return nil
	}
	return d.records(file, at, b, decode)
}

func timestampType(b record.Batch) string {
	if b.IsLogAppendTime() {
		return "LogAppendTime"
	}
	return "CreateTime"
}

func (d *dump) records(file string, at int64, b record.Batch, decode string) error {
	p := b.Payload()
	if c := b.Codec(); c != record.None {
		var err error
		if p, err = record.Decompress(nil, c, p, batchLimit); err != nil {
			return d.broken(file, at, "cannot decompress: %s", err)
		}
	}
	for range b.Count() {
		r, err := record.ReadRecord(p, true)
		if err != nil {
			return d.broken(file, at, "%s", err)
		}
		p = p[r.Size:]
		ts := b.BaseTimestamp() + r.TimestampDelta
		if b.IsLogAppendTime() {
			ts = b.MaxTimestamp()
		}
		kind := "record"
		if b.IsControl() {
			kind = "control"
		}
		e := newEntry(kind).add("offset", b.BaseOffset()+int64(r.OffsetDelta)).add("timestamp", ts)
		derr := fillRecord(e, r, decode, b.IsControl(), d.env.output == "json")
		if err := d.emit(file, e); err != nil {
			return err
		}
		if derr != nil {
			if err := d.broken(file, at, "offset %d: %s", b.BaseOffset()+int64(r.OffsetDelta), derr); err != nil {
				return err
			}
		}
	}
	if len(p) != 0 {
		return d.broken(file, at, "%d bytes after the last record", len(p))
	}
	return nil
}

// fillRecord adds what a record holds; what cannot be decoded is added as bytes.
func fillRecord(e *entry, r record.Record, decode string, control, asJSON bool) error {
	var err error
	switch {
	case control:
		if err = fillControl(e, r); err == nil {
			return nil
		}
	case decode == "metadata":
		var rec metarec.Record
		var version int16
		if rec, version, err = metarec.Decode(r.Value); err == nil {
			e.add("type", metarec.Name(rec.Type())).add("version", version).add("data", plain(rec))
			return nil
		}
	case decode == "offsets":
		if err = fillOffsets(e, r); err == nil {
			return nil
		}
	case decode == "transactions":
		if err = fillTransaction(e, r); err == nil {
			return nil
		}
	}
	addBytes(e, "key", r.Key, asJSON)
	addBytes(e, "value", r.Value, asJSON)
	if len(r.Headers) > 0 {
		e.add("headers", headerList(r.Headers))
	}
	return err
}

func addBytes(e *entry, name string, v []byte, asJSON bool) {
	text, encoding := encodeBytes(v)
	switch {
	case asJSON:
		e.add(name, text)
		if encoding != "" {
			e.add(name+"Encoding", encoding)
		}
	case text == nil:
		e.add(name, "(null)")
	case encoding != "":
		e.add(name, encoding+":"+*text)
	default:
		e.add(name, quoteText(*text))
	}
}

// quoteText keeps a text on one line.
func quoteText(s string) string {
	return strings.NewReplacer("\\", `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\x00", `\0`, "\x1b", `\e`).Replace(s)
}

func headerList(headers []record.Header) []jsonHeader {
	out := make([]jsonHeader, len(headers))
	for i, h := range headers {
		out[i].Key = string(h.Key)
		out[i].Value, out[i].ValueEncoding = encodeBytes(h.Value)
	}
	return out
}

// fillControl decodes a quorum's control record, or the marker that ends a transaction.
func fillControl(e *entry, r record.Record) error {
	if len(r.Key) < 4 {
		return metarec.ErrMalformed
	}
	switch typ := int16(binary.BigEndian.Uint16(r.Key[2:])); typ {
	case 0, 1:
		name := "ABORT"
		if typ == 1 {
			name = "COMMIT"
		}
		e.add("type", name)
		if len(r.Value) >= 6 {
			e.add("coordinatorEpoch", int32(binary.BigEndian.Uint32(r.Value[2:])))
		}
		return nil
	}
	c, err := metarec.DecodeControl(r.Key, r.Value)
	if err != nil {
		return err
	}
	e.add("type", typeName(c)).add("data", plain(c))
	return nil
}
