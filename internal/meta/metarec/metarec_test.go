package metarec

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
)

// values walks a .log or .checkpoint file that Apache Kafka 4.4.0 wrote.
func values(t testing.TB, path string, visit func(control bool, key, value []byte)) {
	t.Helper()
	buf, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if !b.ValidCRC() {
			t.Fatalf("%s: bad CRC at offset %d", path, b.BaseOffset())
		}
		p := b.Payload()
		for range b.Count() {
			r, err := record.ReadRecord(p, false)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			visit(b.IsControl(), r.Key, r.Value)
			p = p[r.Size:]
		}
		buf = rest
	}
}

func goldenFiles(t testing.TB) []string {
	files, _ := filepath.Glob("testdata/0*")
	if len(files) != 6 {
		t.Fatalf("want the 6 files of Kafka's metadata directory, have %q", files)
	}
	return files
}

// Every byte that Kafka wrote comes back from decoding and encoding (metadata-records.md §1, §3).
func TestKafkaBytesComeBack(t *testing.T) {
	seen, controls := map[int16]int{}, map[int16]int{}
	for _, path := range goldenFiles(t) {
		values(t, path, func(control bool, key, value []byte) {
			if control {
				m, err := DecodeControl(key, value)
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				controls[m.ControlType()]++
				if k, v := EncodeControl(m); !bytes.Equal(k, key) || !bytes.Equal(v, value) {
					t.Errorf("%s: %#v\n got %x %x\nwant %x %x", path, m, k, v, key, value)
				}
				return
			}
			r, version, err := Decode(value)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			seen[r.Type()]++
			if got := Encode(r, version); !bytes.Equal(got, value) {
				t.Errorf("%s: %s %+v\n got %x\nwant %x", path, Name(r.Type()), r, got, value)
			}
			if r.Type() != 12 && version != VersionFor(r, 33) {
				t.Errorf("%s: Kafka at level 33 writes version %d, VersionFor says %d", Name(r.Type()), version, VersionFor(r, 33))
			}
		})
	}
	for _, typ := range []int16{0, 2, 3, 4, 5, 9, 11, 12, 14, 15, 17, 18, 20, 23, 24, 27} {
		if seen[typ] == 0 {
			t.Errorf("the golden files hold no %s", Name(typ))
		}
	}
	for typ := TypeLeaderChange; typ <= TypeKRaftVoters; typ++ {
		if controls[typ] == 0 {
			t.Errorf("the golden files hold no control record of type %d", typ)
		}
	}
}

// fill gives every field of a record a random, non-default value.
func fill(v reflect.Value, rng *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), rng)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1+rng.IntN(3), 4))
		for i := range v.Len() {
			fill(v.Index(i), rng)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rng)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), rng)
	case reflect.String:
		v.SetString(string(rune('a' + rng.IntN(26))))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(rng.Float64())
	case reflect.Uint8, reflect.Uint16:
		v.SetUint(uint64(1 + rng.IntN(200)))
	default:
		v.SetInt(int64(1 + rng.IntN(100)))
	}
}

func TestRoundTripAllVersions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	n := 0
	for typ := range int16(len(kinds)) {
		if kinds[typ].make == nil {
			continue
		}
		n++
		for version := range kinds[typ].max + 1 {
			full := kinds[typ].make()
			fill(reflect.ValueOf(full).Elem(), rng)
			// Fields that the version lacks are lost in the first pass and only there.
			first, v, err := Decode(Encode(full, version))
			if err != nil || v != version {
				t.Fatalf("%s version %d: %v", kinds[typ].name, version, err)
			}
			again, _, err := Decode(Encode(first, version))
			if err != nil || !reflect.DeepEqual(first, again) {
				t.Errorf("%s version %d: %+v became %+v (%v)", kinds[typ].name, version, first, again, err)
			}
			if version == kinds[typ].max && !reflect.DeepEqual(full, first) {
				t.Errorf("%s version %d: %+v became %+v", kinds[typ].name, version, full, first)
			}
			def := kinds[typ].make()
			if got, _, err := Decode(Encode(def, version)); err != nil || !reflect.DeepEqual(def, got) {
				t.Errorf("%s version %d, defaults: %+v became %+v (%v)", kinds[typ].name, version, def, got, err)
			}
		}
	}
	if n != 27 {
		t.Errorf("%d record types, the spec lists 27", n)
	}
}

func TestControlRoundTrip(t *testing.T) {
	id := ids.UUID{1, 2, 3}
	for _, m := range []Control{
		&LeaderChange{LeaderID: 1, Voters: []ChangeVoter{{VoterID: 1}, {VoterID: 2}}, GrantingVoters: []ChangeVoter{{VoterID: 2}}},
		&LeaderChange{Version: 1, LeaderID: 1, Voters: []ChangeVoter{{1, id}}},
		&SnapshotHeader{LastContainedLogTimestamp: 77},
		&SnapshotFooter{},
		&KRaftVersion{KRaftVersion: 1},
		&KRaftVoters{Voters: []Voter{{VoterID: 3, VoterDirectoryID: id, Endpoints: []VoterEndpoint{{"CONTROLLER", "h", 65535}}, MaxSupportedVersion: 1}}},
	} {
		k, v := EncodeControl(m)
		got, err := DecodeControl(k, v)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%+v became %+v (%v)", m, got, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	good := Encode(&Topic{Name: "a"}, 0)
	change := NewPartitionChange()
	change.ISR = []int32{1}
	with := Encode(change, 0)
	cases := []struct {
		name  string
		value []byte
		want  error
	}{
		{"empty", nil, ErrMalformed},
		{"frame version 0", append([]byte{0}, good[1:]...), ErrMalformed},
		{"frame version 2", append([]byte{2}, good[1:]...), ErrMalformed},
		{"unused type 6", []byte{1, 6, 0, 0}, ErrUnknownType},
		{"type 30", []byte{1, 30, 0, 0}, ErrUnknownType},
		{"version 1 of TopicRecord", append([]byte{1, 2, 1}, good[3:]...), ErrVersion},
		{"bytes after", append(bytes.Clone(good), 0), ErrMalformed},
		{"cut", good[:len(good)-1], ErrMalformed},
		{"null name", append([]byte{1, 2, 0, 0}, make([]byte, 17)...), ErrMalformed},
		{"lying array length", append(with[:len(with)-6:len(with)-6], 0xff, 0xff, 0xff, 0xff, 0x0f), ErrMalformed},
	}
	for _, c := range cases {
		if _, _, err := Decode(c.value); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := DecodeControl([]byte{0, 0, 0, 9}, nil); !errors.Is(err, ErrUnknownType) {
		t.Errorf("control type 9: %v", err)
	}
	if _, err := DecodeControl([]byte{0, 0, 0, 4}, []byte{0, 1, 0}); !errors.Is(err, ErrVersion) {
		t.Errorf("SnapshotFooter version 1: %v", err)
	}
}

// Tagged fields that a version does not have are passed over.
func TestUnknownTaggedFieldIsSkipped(t *testing.T) {
	b := Encode(&FeatureLevel{Name: "x", FeatureLevel: 3}, 0)
	b[len(b)-1] = 1 // one tagged field
	b = append(b, 9, 2, 0xaa, 0xbb)
	r, _, err := Decode(b)
	if err != nil || *r.(*FeatureLevel) != (FeatureLevel{Name: "x", FeatureLevel: 3}) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestVersionFor(t *testing.T) {
	change := NewPartitionChange()
	for _, c := range []struct {
		r     Record
		level int16
		want  int16
	}{
		{&RegisterBroker{}, 7, 1}, {&RegisterBroker{}, 8, 2}, {&RegisterBroker{}, 17, 3}, {&RegisterBroker{}, 29, 3}, {&RegisterBroker{}, 30, 4},
		{&Partition{}, 16, 0}, {&Partition{}, 17, 1}, {&Partition{}, 23, 2}, {change, 22, 1}, {change, 33, 2},
		{&BrokerRegistrationChange{Fenced: 1}, 33, 0},
		{&BrokerRegistrationChange{InControlledShutdown: 1}, 33, 1},
		{&BrokerRegistrationChange{LogDirs: []ids.UUID{{1}}}, 33, 2},
		{&BrokerRegistrationChange{CordonedLogDirs: []ids.UUID{}}, 33, 3},
	} {
		if got := VersionFor(c.r, c.level); got != c.want {
			t.Errorf("%s at level %d: version %d, want %d", Name(c.r.Type()), c.level, got, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, path := range goldenFiles(f) {
		values(f, path, func(control bool, _, value []byte) {
			if !control {
				f.Add(value)
			}
		})
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, version, err := Decode(value)
		if err != nil {
			return
		}
		again, v, err := Decode(Encode(r, version))
		if err != nil || v != version {
			t.Fatalf("%x decodes to %+v, whose encoding does not decode: %v", value, r, err)
		}
		if b := Encode(again, version); !bytes.Equal(b, Encode(r, version)) {
			t.Fatalf("%x: encoding is not stable", value)
		}
	})
}

func FuzzDecodeControl(f *testing.F) {
	for _, path := range goldenFiles(f) {
		values(f, path, func(control bool, key, value []byte) {
			if control {
				f.Add(key, value)
			}
		})
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m, err := DecodeControl(key, value)
		if err != nil {
			return
		}
		k, v := EncodeControl(m)
		if again, err := DecodeControl(k, v); err != nil || again.ControlType() != m.ControlType() {
			t.Fatalf("%x %x: %v", key, value, err)
		}
	})
}

func BenchmarkDecode10000Partitions(b *testing.B) {
	v := Encode(&Partition{PartitionID: 1, TopicID: ids.UUID{1}, Replicas: []int32{1, 2, 3}, ISR: []int32{1, 2, 3},
		Directories: make([]ids.UUID, 3), Leader: 1, EligibleLeaderReplicas: []int32{}}, 2)
	b.ReportAllocs()
	for b.Loop() {
		for range 10000 {
			if _, _, err := Decode(v); err != nil {
				b.Fatal(err)
			}
		}
	}
}
