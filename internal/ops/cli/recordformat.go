package cli

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"
)

// recordFormat writes one record; the parts are run in order.
type recordFormat []func(b []byte, r *kgo.Record) []byte

const formatHelp = `Format: %k key, %v value, %h headers, %t topic, %p partition, %o offset,
%T timestamp in ms, %d timestamp as a date, %e leader epoch, %K and %V length of key and
value (-1 for null), %n new line, %% a percent sign; \n \t \r \0 \\ and \xHH stand for bytes.`

// parseFormat reads kcat's way to say how a record is printed. null stands for null keys
// and values.
func parseFormat(layout string, null []byte) (recordFormat, error) {
	var f recordFormat
	var literal []byte
	flush := func() {
		if lit := literal; len(lit) > 0 {
			f = append(f, func(b []byte, _ *kgo.Record) []byte { return append(b, lit...) })
		}
		literal = nil
	}
	text, err := unescape(layout)
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			literal = append(literal, text[i])
			continue
		}
		if i++; i == len(text) {
			return nil, usage("--format ends with a lone %%").hint("write %%%% for a percent sign")
		}
		switch text[i] {
		case '%':
			literal = append(literal, '%')
			continue
		case 'n':
			literal = append(literal, '\n')
			continue
		}
		part := formatPart(text[i], null)
		if part == nil {
			return nil, usage("--format: %%%c is not known", text[i]).hint("known are %%k %%v %%h %%t %%p %%o %%T %%d %%e %%K %%V %%n and %%%%")
		}
		flush()
		f = append(f, part)
	}
	flush()
	return f, nil
}

func formatPart(verb byte, null []byte) func([]byte, *kgo.Record) []byte {
	number := func(n func(*kgo.Record) int64) func([]byte, *kgo.Record) []byte {
		return func(b []byte, r *kgo.Record) []byte { return strconv.AppendInt(b, n(r), 10) }
	}
	switch verb {
	case 'k':
		return func(b []byte, r *kgo.Record) []byte { return appendOr(b, r.Key, null) }
	case 'v', 's':
		return func(b []byte, r *kgo.Record) []byte { return appendOr(b, r.Value, null) }
	case 'h':
		return func(b []byte, r *kgo.Record) []byte { return appendHeaders(b, r.Headers, null) }
	case 't':
		return func(b []byte, r *kgo.Record) []byte { return append(b, r.Topic...) }
	case 'd':
		return func(b []byte, r *kgo.Record) []byte {
			return r.Timestamp.UTC().AppendFormat(b, "2006-01-02T15:04:05.000Z")
		}
	case 'p':
		return number(func(r *kgo.Record) int64 { return int64(r.Partition) })
	case 'o':
		return number(func(r *kgo.Record) int64 { return r.Offset })
	case 'T':
		return number(func(r *kgo.Record) int64 { return r.Timestamp.UnixMilli() })
	case 'e':
		return number(func(r *kgo.Record) int64 { return int64(r.LeaderEpoch) })
	case 'K':
		return number(func(r *kgo.Record) int64 { return length(r.Key) })
	case 'V', 'S':
		return number(func(r *kgo.Record) int64 { return length(r.Value) })
	}
	return nil
}

func length(v []byte) int64 {
	if v == nil {
		return -1
	}
	return int64(len(v))
}

func appendOr(b, v, null []byte) []byte {
	if v == nil {
		return append(b, null...)
	}
	return append(b, v...)
}

func appendHeaders(b []byte, headers []kgo.RecordHeader, null []byte) []byte {
	for i, h := range headers {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, h.Key...), '=')
		b = appendOr(b, h.Value, null)
	}
	return b
}

// unescape reads \n, \t, \r, \0, \\ and \xHH.
func unescape(s string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 'n':
			b.WriteByte('\n')
		case 't':
			b.WriteByte('\t')
		case 'r':
			b.WriteByte('\r')
		case '0':
			b.WriteByte(0)
		case '\\':
			b.WriteByte('\\')
		case 'x':
			if i+2 >= len(s) {
				return "", usage("%q: \\x needs two hexadecimal digits", s)
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", usage("%q: \\x needs two hexadecimal digits", s)
			}
			b.WriteByte(byte(n))
			i += 2
		default:
			return "", usage("%q: \\%c is not known", s, s[i]).hint("known are \\n \\t \\r \\0 \\\\ and \\xHH")
		}
	}
	return b.String(), nil
}

// jsonRecord is a record as `consume -o json` writes and `produce --input json` reads it.
// Bytes that are not UTF-8 are base64, and the Encoding field says so.
type jsonRecord struct {
	Topic         string       `json:"topic,omitempty"`
	Partition     *int32       `json:"partition,omitempty"`
	Offset        *int64       `json:"offset,omitempty"`
	Timestamp     *int64       `json:"timestamp,omitempty"`
	TimestampType string       `json:"timestampType,omitempty"`
	Key           *string      `json:"key"`
	KeyEncoding   string       `json:"keyEncoding,omitempty"`
	Value         *string      `json:"value"`
	ValueEncoding string       `json:"valueEncoding,omitempty"`
	Headers       []jsonHeader `json:"headers,omitempty"`
}

type jsonHeader struct {
	Key           string  `json:"key"`
	Value         *string `json:"value"`
	ValueEncoding string  `json:"valueEncoding,omitempty"`
}

func encodeBytes(v []byte) (text *string, encoding string) {
	if v == nil {
		return nil, ""
	}
	s := string(v)
	if !utf8.Valid(v) {
		s, encoding = base64.StdEncoding.EncodeToString(v), "base64"
	}
	return &s, encoding
}

func decodeBytes(text *string, encoding string) ([]byte, error) {
	switch {
	case text == nil:
		return nil, nil
	case encoding == "":
		return []byte(*text), nil
	case encoding == "base64":
		b, err := base64.StdEncoding.DecodeString(*text)
		if b == nil {
			b = []byte{}
		}
		return b, err
	}
	return nil, usage("encoding %q is not known", encoding).hint("leave it out, or use base64")
}

func appendJSONRecord(b []byte, r *kgo.Record, keysOnly bool) []byte {
	ms := r.Timestamp.UnixMilli()
	j := jsonRecord{Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, Timestamp: &ms, TimestampType: "CreateTime"}
	if r.Attrs.TimestampType() == 1 {
		j.TimestampType = "LogAppendTime"
	}
	j.Key, j.KeyEncoding = encodeBytes(r.Key)
	if !keysOnly {
		j.Value, j.ValueEncoding = encodeBytes(r.Value)
	}
	for _, h := range r.Headers {
		jh := jsonHeader{Key: h.Key}
		jh.Value, jh.ValueEncoding = encodeBytes(h.Value)
		j.Headers = append(j.Headers, jh)
	}
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.Encode(j) // strings and numbers cannot fail
	return append(b, out.String()...)
}

func (j *jsonRecord) record() (*kgo.Record, error) {
	r := &kgo.Record{Partition: -1}
	var err error
	if r.Key, err = decodeBytes(j.Key, j.KeyEncoding); err != nil {
		return nil, err
	}
	if r.Value, err = decodeBytes(j.Value, j.ValueEncoding); err != nil {
		return nil, err
	}
	for _, h := range j.Headers {
		v, err := decodeBytes(h.Value, h.ValueEncoding)
		if err != nil {
			return nil, err
		}
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.Key, Value: v})
	}
	if j.Partition != nil {
		r.Partition = *j.Partition
	}
	if j.Timestamp != nil {
		r.Timestamp = time.UnixMilli(*j.Timestamp)
	}
	return r, nil
}
