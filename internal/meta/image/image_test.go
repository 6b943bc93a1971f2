package image

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	"runnel/internal/kit/ids"
	"runnel/internal/kit/record"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/metarec"
)

const golden = "../metarec/testdata/"

type entry struct {
	rec    metarec.Record
	offset int64
	epoch  int32
	raw    string
}

// read gives the data records of a file that Apache Kafka wrote.
func read(t testing.TB, path string) []entry {
	t.Helper()
	buf, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []entry
	for len(buf) > 0 {
		b, rest, err := record.Next(buf)
		if err != nil {
			t.Fatal(err)
		}
		p := b.Payload()
		for n := range b.Count() {
			r, err := record.ReadRecord(p, false)
			if err != nil {
				t.Fatal(err)
			}
			p = p[r.Size:]
			if b.IsControl() {
				continue
			}
			rec, _, err := metarec.Decode(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, entry{rec, b.BaseOffset() + int64(n), b.LeaderEpoch(), string(r.Value)})
		}
		buf = rest
	}
	return out
}

func apply(t testing.TB, i *Image, records ...metarec.Record) *Image {
	t.Helper()
	next, _, err := i.Apply(records, i.Offset()+int64(len(records)), 1)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// dump is an image's whole state as text, for comparing.
func dump(i *Image) string {
	var lines []string
	for r := range i.Snapshot() {
		lines = append(lines, fmt.Sprintf("%x", metarec.Encode(r, metarec.VersionFor(r, i.MetadataVersion()))))
	}
	return strings.Join(lines, "\n")
}

// Kafka's log up to a snapshot gives the image that Kafka's snapshot gives, and our snapshot
// of it holds exactly the records that Kafka's does (metadata-records.md §2, §3.1).
func TestKafkaLogAndSnapshotsAgree(t *testing.T) {
	log := read(t, golden+"00000000000000000000.log")
	files, _ := filepath.Glob(golden + "*.checkpoint")
	compared := 0
	for _, path := range files {
		var end int64
		var epoch int32
		fmt.Sscanf(filepath.Base(path), "%d-%d", &end, &epoch)
		want := read(t, path)
		loaded, err := Load(recordsOf(want), end-1, epoch)
		if err != nil {
			t.Fatal(err)
		}
		compareRaw(t, path, loaded, want)
		if end == 0 {
			continue
		}
		compared++
		img := Empty()
		for _, e := range log {
			if e.offset >= end {
				break
			}
			if img, _, err = img.Apply([]metarec.Record{e.rec}, e.offset, e.epoch); err != nil {
				t.Fatal(err)
			}
		}
		if dump(img) != dump(loaded) {
			t.Errorf("%s: replay and snapshot differ", path)
			a, b := strings.Split(dump(img), "\n"), strings.Split(dump(loaded), "\n")
			for _, l := range a {
				if !slices.Contains(b, l) {
					t.Logf("only in the log: %s", l)
				}
			}
			for _, l := range b {
				if !slices.Contains(a, l) {
					t.Logf("only in the snapshot: %s", l)
				}
			}
		}
		if img.Epoch() != epoch {
			t.Errorf("%s: epoch %d", path, img.Epoch())
		}
		d := FromSnapshot(img, loaded)
		d.Brokers = nil // the registration's offset is not in a snapshot
		if !d.IsEmpty() {
			t.Errorf("%s: difference of equal images: %+v", path, d)
		}
	}
	if compared != 3 {
		t.Fatalf("compared %d snapshots, want 3", compared)
	}
}

func recordsOf(entries []entry) iter.Seq[metarec.Record] {
	return func(yield func(metarec.Record) bool) {
		for _, e := range entries {
			if !yield(e.rec) {
				return
			}
		}
	}
}

func compareRaw(t *testing.T, path string, img *Image, want []entry) {
	t.Helper()
	var mine, theirs []string
	var kinds []string
	for r := range img.Snapshot() {
		mine = append(mine, string(metarec.Encode(r, metarec.VersionFor(r, img.MetadataVersion()))))
		if n := metarec.Name(r.Type()); n != "PartitionRecord" && n != "TopicRecord" && (len(kinds) == 0 || kinds[len(kinds)-1] != n) {
			kinds = append(kinds, n)
		}
	}
	for _, e := range want {
		switch r := e.rec.(type) {
		case *metarec.RegisterBroker: // Kafka's order of features is that of a hash map
			r.Features = sortedFeatures(r.Features)
			e.raw = string(metarec.Encode(r, metarec.VersionFor(r, img.MetadataVersion())))
		case *metarec.RegisterController:
			r.Features = sortedFeatures(r.Features)
			e.raw = string(metarec.Encode(r, 0))
		}
		theirs = append(theirs, e.raw)
	}
	sort.Strings(mine)
	sort.Strings(theirs)
	if !slices.Equal(mine, theirs) {
		for n := range max(len(mine), len(theirs)) {
			if n < len(mine) && !slices.Contains(theirs, mine[n]) {
				t.Errorf("%s: only ours %x", path, mine[n])
			}
			if n < len(theirs) && !slices.Contains(mine, theirs[n]) {
				t.Errorf("%s: only Kafka's %x", path, theirs[n])
			}
		}
	}
	order := []string{"FeatureLevelRecord", "RegisterBrokerRecord", "RegisterControllerRecord", "ConfigRecord",
		"ClientQuotaRecord", "ProducerIdsRecord", "AccessControlEntryRecord", "UserScramCredentialRecord"}
	at := 0
	for _, k := range kinds {
		n := slices.Index(order[at:], k)
		if n < 0 {
			t.Errorf("%s: order %v", path, kinds)
			break
		}
		at += n + 1
	}
}

func ptr[T any](v T) *T { return &v }

var topicA, topicB = ids.UUID{1}, ids.UUID{2}

func partition(topic ids.UUID, p int32, replicas ...int32) *metarec.Partition {
	return &metarec.Partition{PartitionID: p, TopicID: topic, Replicas: replicas, ISR: replicas, Leader: replicas[0],
		Directories: make([]ids.UUID, len(replicas))}
}

func sample(t *testing.T) *Image {
	return apply(t, Empty(),
		&metarec.FeatureLevel{Name: feature.MetadataVersion, FeatureLevel: 33},
		&metarec.RegisterBroker{BrokerID: 2, BrokerEpoch: 5, Fenced: true, LogDirs: []ids.UUID{{9}}},
		&metarec.RegisterBroker{BrokerID: 1, BrokerEpoch: 4, Fenced: true},
		&metarec.Topic{Name: "a", TopicID: topicA},
		partition(topicA, 0, 1, 2), partition(topicA, 1, 2, 1),
		&metarec.Config{ResourceType: TopicConfig, ResourceName: "a", Name: "k", Value: ptr("v")},
	)
}

// metadata-records.md §3.1, PartitionChange: what is absent stays; epochs move as said.
func TestPartitionChange(t *testing.T) {
	base := Partition{Replicas: []int32{1, 2}, ISR: []int32{1, 2}, Leader: 1, LeaderEpoch: 5, PartitionEpoch: 7,
		ELR: []int32{3}, Directories: []ids.UUID{{1}, {2}}}
	change := func(f func(*metarec.PartitionChange)) *metarec.PartitionChange {
		c := metarec.NewPartitionChange()
		f(c)
		return c
	}
	with := func(f func(*Partition)) Partition { p := base; p.PartitionEpoch++; f(&p); return p }
	for name, c := range map[string]struct {
		change *metarec.PartitionChange
		want   Partition
	}{
		"nothing":     {change(func(*metarec.PartitionChange) {}), with(func(*Partition) {})},
		"same leader": {change(func(c *metarec.PartitionChange) { c.Leader = 1 }), with(func(p *Partition) { p.LeaderEpoch = 6 })},
		"no leader": {change(func(c *metarec.PartitionChange) { c.Leader = NoLeader }),
			with(func(p *Partition) { p.Leader = NoLeader; p.LeaderEpoch = 6 })},
		"isr":       {change(func(c *metarec.PartitionChange) { c.ISR = []int32{2} }), with(func(p *Partition) { p.ISR = []int32{2} })},
		"empty elr": {change(func(c *metarec.PartitionChange) { c.EligibleLeaderReplicas = []int32{} }), with(func(p *Partition) { p.ELR = nil })},
		"recovering": {change(func(c *metarec.PartitionChange) { c.LeaderRecoveryState = 1 }),
			with(func(p *Partition) { p.Recovering = true })},
		"replicas keep their directories": {change(func(c *metarec.PartitionChange) { c.Replicas = []int32{3, 2} }),
			with(func(p *Partition) { p.Replicas = []int32{3, 2}; p.Directories = []ids.UUID{ids.DirUnassigned, {2}} })},
		"directories given": {change(func(c *metarec.PartitionChange) {
			c.Replicas, c.Directories = []int32{1}, []ids.UUID{{8}}
		}), with(func(p *Partition) { p.Replicas = []int32{1}; p.Directories = []ids.UUID{{8}} })},
	} {
		got, err := base.Changed(c.change)
		if err != nil || !reflect.DeepEqual(*got, c.want) {
			t.Errorf("%s: %+v, want %+v (%v)", name, got, c.want, err)
		}
	}
	if _, err := base.Changed(change(func(c *metarec.PartitionChange) { c.Directories = []ids.UUID{{1}} })); err == nil {
		t.Error("one directory for two replicas was accepted")
	}
}

func TestApplyIsPureAndDeltaIsExact(t *testing.T) {
	old := sample(t)
	before := dump(old)
	change := metarec.NewPartitionChange()
	change.TopicID, change.PartitionID, change.ISR = topicA, 1, []int32{2}
	next, d, err := old.Apply([]metarec.Record{
		change,
		&metarec.Topic{Name: "b", TopicID: topicB}, partition(topicB, 0, 1),
		&metarec.Config{ResourceType: TopicConfig, ResourceName: "a", Name: "k", Value: nil},
		&metarec.Config{ResourceType: TopicConfig, ResourceName: "a", Name: "l", Value: ptr("w")},
		&metarec.BrokerRegistrationChange{BrokerID: 1, BrokerEpoch: 4, Fenced: -1},
	}, 12, 3)
	if err != nil {
		t.Fatal(err)
	}
	if dump(old) != before {
		t.Fatal("Apply changed the old image")
	}
	if got := d.Topics[topicA]; got.Created() || got.Deleted() || !slices.Equal(got.Changed, []int32{1}) {
		t.Errorf("topic a: %+v", got)
	}
	if got := d.Topics[topicB]; !got.Created() || !slices.Equal(got.Changed, []int32{0}) {
		t.Errorf("topic b: %+v", got)
	}
	if got := d.Brokers[1]; len(d.Brokers) != 1 || !got.Old.Fenced || got.New.Fenced {
		t.Errorf("brokers: %+v", d.Brokers)
	}
	if m := next.Config(TopicConfig, "a"); len(m) != 1 || m["l"] != "w" || old.Config(TopicConfig, "a")["k"] != "v" {
		t.Errorf("configs: %v", m)
	}
	if next.Offset() != 12 || next.Epoch() != 3 {
		t.Errorf("offset %d epoch %d", next.Offset(), next.Epoch())
	}
	same := FromSnapshot(old, next)
	if !reflect.DeepEqual(d, same) {
		t.Errorf("delta by records %+v\nby difference %+v", d, same)
	}
}

// RemoveTopic takes partitions and configs with it; the name is free again at once.
func TestRemoveTopic(t *testing.T) {
	old := sample(t)
	next, d, err := old.Apply([]metarec.Record{
		&metarec.RemoveTopic{TopicID: topicA}, &metarec.Topic{Name: "a", TopicID: topicB}, partition(topicB, 0, 1),
	}, old.Offset()+3, 1)
	if err != nil {
		t.Fatal(err)
	}
	if next.Topic("a").ID != topicB || next.TopicByID(topicA) != nil || next.Config(TopicConfig, "a") != nil || next.TopicCount() != 1 {
		t.Errorf("after: %s", dump(next))
	}
	if !d.Topics[topicA].Deleted() || !d.Topics[topicB].Created() || len(d.Configs) != 1 {
		t.Errorf("delta %+v", d)
	}
	// K2: what a snapshot lacks is gone.
	if back := FromSnapshot(next, old); !back.Topics[topicB].Deleted() || !back.Topics[topicA].Created() {
		t.Errorf("back: %+v", back)
	}
	gone, d, err := old.Apply([]metarec.Record{&metarec.Topic{Name: "x", TopicID: topicB}, &metarec.RemoveTopic{TopicID: topicB}}, 99, 1)
	if err != nil || len(d.Topics) != 0 || gone.Topic("x") != nil {
		t.Errorf("a topic that came and went: %+v %v", d, err)
	}
}

// metadata-records.md §1: records after Begin are withheld until End; Abort discards them.
func TestMetadataTransactions(t *testing.T) {
	img := apply(t, sample(t), &metarec.BeginTransaction{}, &metarec.Topic{Name: "b", TopicID: topicB})
	if img.Topic("b") != nil || !img.InTransaction() {
		t.Fatal("visible inside the transaction")
	}
	other := apply(t, img, partition(topicB, 0, 1), &metarec.AbortTransaction{})
	if other.Topic("b") != nil || other.InTransaction() {
		t.Error("an aborted transaction left something")
	}
	done := apply(t, img, partition(topicB, 0, 2), &metarec.EndTransaction{})
	if got := done.Topic("b").Partition(0); got == nil || got.Leader != 2 || done.InTransaction() {
		t.Errorf("after the end: %+v", got)
	}
	for name, records := range map[string][]metarec.Record{
		"nested begin": {&metarec.BeginTransaction{}, &metarec.BeginTransaction{}},
		"stray end":    {&metarec.EndTransaction{}},
		"stray abort":  {&metarec.AbortTransaction{}},
	} {
		if _, _, err := sample(t).Apply(records, 50, 1); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

// A record that does not fit the image is a fault, not something to skip (K4).
func TestFaults(t *testing.T) {
	change := metarec.NewPartitionChange()
	change.TopicID, change.PartitionID = topicA, 7
	for name, r := range map[string]metarec.Record{
		"topic name twice":         &metarec.Topic{Name: "a", TopicID: topicB},
		"topic id twice":           &metarec.Topic{Name: "b", TopicID: topicA},
		"remove unknown topic":     &metarec.RemoveTopic{TopicID: topicB},
		"partition without topic":  partition(topicB, 0, 1),
		"partition after a gap":    partition(topicA, 5, 1),
		"change unknown partition": change,
		"other broker epoch":       &metarec.BrokerRegistrationChange{BrokerID: 1, BrokerEpoch: 3, Fenced: 1},
		"unregister other epoch":   &metarec.UnregisterBroker{BrokerID: 1, BrokerEpoch: 3},
		"unknown controller":       &metarec.UnregisterController{ControllerID: 1},
		"unknown acl":              &metarec.RemoveAccessControlEntry{ID: topicB},
		"future metadata.version":  &metarec.FeatureLevel{Name: feature.MetadataVersion, FeatureLevel: 34},
		"clear ELR of no topic":    &metarec.ClearElr{TopicName: "x"},
	} {
		if _, _, err := sample(t).Apply([]metarec.Record{r}, 50, 1); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestClearElr(t *testing.T) {
	elr := partition(topicB, 0, 1, 2)
	elr.EligibleLeaderReplicas, elr.LastKnownElr = []int32{2}, []int32{1}
	img := apply(t, sample(t), &metarec.Topic{Name: "b", TopicID: topicB}, elr)
	for _, name := range []string{"", "b"} {
		next, d, err := img.Apply([]metarec.Record{&metarec.ClearElr{TopicName: name}}, 99, 1)
		if err != nil {
			t.Fatal(err)
		}
		if p := next.Topic("b").Partition(0); p.ELR != nil || p.LastKnownELR != nil || len(img.Topic("b").Partition(0).ELR) != 1 {
			t.Errorf("%q: %+v", name, p)
		}
		if len(d.Topics) != 1 {
			t.Errorf("%q: delta %+v", name, d.Topics)
		}
	}
	fresh := apply(t, sample(t), &metarec.Topic{Name: "b", TopicID: topicB}, elr, &metarec.ClearElr{})
	if p := fresh.Topic("b").Partition(0); p.ELR != nil {
		t.Errorf("in one batch: %+v", p)
	}
}

func TestSecurityAndQuotas(t *testing.T) {
	user := []metarec.QuotaEntity{{EntityType: "user", EntityName: ptr("u")}, {EntityType: "client-id"}}
	img := apply(t, sample(t),
		&metarec.ClientQuota{Entity: user, Key: "x", Value: 1}, &metarec.ClientQuota{Entity: []metarec.QuotaEntity{user[1], user[0]}, Key: "y", Value: 2},
		&metarec.AccessControlEntry{ID: topicA, Principal: "User:u"},
		&metarec.UserScramCredential{Name: "u", Mechanism: 1, Iterations: 4096},
		&metarec.DelegationToken{TokenID: "t"}, &metarec.ProducerIDs{BrokerID: 1, NextProducerID: 1000})
	q := img.Quota(QuotaKey(user))
	if len(q.Values) != 2 || img.ACL(topicA) == nil || img.Scram("u", 1) == nil || img.Token("t") == nil || img.NextProducerID() != 1000 {
		t.Errorf("%+v", img)
	}
	if QuotaKey([]metarec.QuotaEntity{{EntityType: "user", EntityName: ptr("")}}) == QuotaKey([]metarec.QuotaEntity{{EntityType: "user"}}) {
		t.Error("empty name and default entity have one key")
	}
	loaded, err := Load(img.Snapshot(), img.Offset(), 1)
	if err != nil || dump(loaded) != dump(img) {
		t.Errorf("snapshot differs: %v", err)
	}
	none := apply(t, img,
		&metarec.ClientQuota{Entity: user, Key: "x", Remove: true}, &metarec.ClientQuota{Entity: user, Key: "y", Remove: true},
		&metarec.RemoveAccessControlEntry{ID: topicA}, &metarec.RemoveUserScramCredential{Name: "u", Mechanism: 1},
		&metarec.RemoveDelegationToken{TokenID: "t"})
	if d := FromSnapshot(img, none); len(d.Quotas) != 1 || len(d.ACLs) != 1 || len(d.Scram) != 1 || len(d.Tokens) != 1 {
		t.Errorf("%+v", d)
	}
	if len(q.Values) != 2 {
		t.Error("the old image's quota changed")
	}
}

func BenchmarkCreateTopic(b *testing.B) {
	img := Empty()
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n++
		id := ids.UUID{1, byte(n), byte(n >> 8), byte(n >> 16)}
		next, _, err := img.Apply([]metarec.Record{&metarec.Topic{Name: fmt.Sprint("topic", n), TopicID: id}, partition(id, 0, 1, 2, 3)}, int64(n), 1)
		if err != nil {
			b.Fatal(err)
		}
		img = next
	}
}
