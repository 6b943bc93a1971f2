package wire

import (
	"bytes"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
)

// Our encoder must say what kmsg, generated from Kafka's definitions, reads.
func TestFetchResponseReadsBackInEveryVersion(t *testing.T) {
	fs := vfs.NewMem()
	f, err := fs.OpenFile("x", vfs.ReadWrite|vfs.Create)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("..records.."), 0); err != nil {
		t.Fatal(err)
	}
	rack := "r1"
	for v := int16(4); v <= 18; v++ {
		in := &FetchResponse{Version: v, ThrottleMs: 7, ErrorCode: 3, SessionID: 99, Topics: []FetchTopic{
			{Name: "a", ID: ids.UUID{1: 5}, Partitions: []FetchPartition{
				{Index: 1, ErrorCode: 6, HighWatermark: 10, LastStableOffset: 9, LogStartOffset: 2, PreferredReplica: -1,
					Leader: &LeaderEpoch{3, 4}, Diverging: &EpochEnd{2, 77}, Records: vfs.Region{File: f, Off: 2, Len: 7}},
				{Index: 2, PreferredReplica: 5, Aborted: []AbortedTxn{{8, 1}}, Snapshot: &SnapshotID{5, 6}},
			}},
			{Name: "b", Partitions: []FetchPartition{{Index: 0, PreferredReplica: -1, Inline: []byte("xy")}}},
		}, Endpoints: []NodeEndpoint{{3, "host", 9092, nil}, {4, "other", 1, &rack}}}
		_, parts, n := in.Parts([]byte("head"))
		var out []byte
		for _, p := range parts {
			out = append(out, p.Bytes...)
			b, err := p.Region.ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b...)
		}
		if n != 7 {
			t.Fatalf("v%d: %d bytes of regions", v, n)
		}
		got := kmsg.NewPtrFetchResponse()
		got.Version = v
		if err := got.ReadFrom(out[len("head"):]); err != nil {
			t.Fatalf("v%d: %v", v, err)
		}
		if enc := got.AppendTo(nil); !bytes.Equal(enc, out[len("head"):]) {
			t.Fatalf("v%d: kmsg encodes\n% x, we\n% x", v, enc, out[len("head"):])
		}
		p := got.Topics[0].Partitions[0]
		if string(p.RecordBatches) != "records" || p.HighWatermark != 10 || p.ErrorCode != 6 {
			t.Fatalf("v%d: %+v", v, p)
		}
		if q := got.Topics[0].Partitions[1]; q.RecordBatches == nil {
			t.Fatalf("v%d: empty records are null (B35)", v)
		}
		if v >= 16 && (len(got.Brokers) != 2 || got.Brokers[1].Rack == nil || p.CurrentLeader.LeaderEpoch != 4 || p.DivergingEpoch.EndOffset != 77) {
			t.Fatalf("v%d: tags %+v %+v", v, got.Brokers, p)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(AppendHeader(nil, Header{Key: 3, Version: 9, CorrelationID: 1, ClientID: "x"}, true), true)
	f.Fuzz(func(t *testing.T, b []byte, flex bool) {
		_, rest, err := ParseHeader(b, func(int16, int16) bool { return flex })
		if err == nil && len(rest) > len(b) {
			t.Fatal("more body than frame")
		}
	})
}
