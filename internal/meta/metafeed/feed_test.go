package metafeed

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/kit/vfs"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
	"runnel/internal/meta/quorum"
	"runnel/internal/store/commitlog"
)

type controllerLog struct{ calls []string }

func (c *controllerLog) Lead(epoch int32, img *image.Image, end int64) {
	if img.Offset() != end-1 {
		panic("the controller is started on an image that lacks records")
	}
	c.calls = append(c.calls, "lead")
}
func (c *controllerLog) Resign(epoch int32) { c.calls = append(c.calls, "resign") }

func encode(t *testing.T, rs ...metarec.Record) (out [][]byte) {
	for _, r := range rs {
		out = append(out, metarec.Encode(r, metarec.VersionFor(r, 25)))
	}
	return out
}

func topic(name string) *metarec.Topic {
	return &metarec.Topic{Name: name, TopicID: ids.UUID{0: 1, 15: name[0]}}
}

func TestSubscribersSeeEveryImageInOrderBeforeOthersDo(t *testing.T) {
	var seen []string
	var f *Feed
	note := func(who string) Subscriber {
		return func(d *image.Delta, img *image.Image) {
			if f.Image().Offset() >= img.Offset() {
				t.Errorf("%s: the image was given out first", who)
			}
			seen = append(seen, who)
		}
	}
	f = New(Options{Subscribers: []Subscriber{note("first"), note("second")}, Now: time.Now})
	done := make(chan error, 1)
	go func() { done <- f.Await(context.Background(), 1) }()
	f.Committed(nil, 0, 1, 0) // a control batch changes nothing
	f.Committed(encode(t, topic("a")), 1, 1, 0)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []string{"first", "second"}) || f.Image().Topic("a") == nil {
		t.Fatalf("seen %v", seen)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Await(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Fatalf("await of the future: %v", err)
	}
}

func TestARecordThatCannotBeReplayedStopsTheFeed(t *testing.T) {
	var fatal error
	f := New(Options{Now: time.Now, Fatal: func(err error) { fatal = err }})
	f.Committed([][]byte{{1, 0x7f, 0}}, 0, 1, 0)
	if fatal == nil {
		t.Fatal("an unknown record type was skipped")
	}
	f.Committed(encode(t, topic("a")), 1, 1, 0)
	if f.Image().Topic("a") != nil {
		t.Fatal("the feed went on")
	}
}

func TestSnapshotsWhenDueAndLoadedBack(t *testing.T) {
	var id quorum.SnapshotID
	var got [][]byte
	f := New(Options{Now: time.Now, SnapshotBytes: 60, WriteSnapshot: func(i quorum.SnapshotID, ts int64, values iter.Seq[[]byte]) error {
		id = i
		for v := range values {
			got = append(got, slices.Clone(v))
		}
		return nil
	}})
	level := &metarec.FeatureLevel{Name: "metadata.version", FeatureLevel: 25}
	f.Committed(encode(t, level), 1, 3, 0)
	f.Close()
	if got != nil {
		t.Fatal("a snapshot before it was due")
	}
	f.Committed(encode(t, topic("a"), topic("b")), 3, 3, 0)
	f.Close()
	if id != (quorum.SnapshotID{EndOffset: 4, Epoch: 3}) || len(got) != 3 {
		t.Fatalf("snapshot %v of %d records", id, len(got))
	}
	again := New(Options{Now: time.Now})
	again.Snapshot(func(yield func([]byte, error) bool) {
		for _, v := range got {
			if !yield(v, nil) {
				return
			}
		}
	}, id)
	if again.Image().Topic("b") == nil || again.Image().Offset() != 3 || again.Image().MetadataVersion() != 25 {
		t.Fatalf("loaded image at offset %d", again.Image().Offset())
	}
	// What a snapshot does not hold is gone.
	again.Snapshot(func(yield func([]byte, error) bool) { yield(got[0], nil) }, quorum.SnapshotID{EndOffset: 9, Epoch: 3})
	if again.Image().Topic("b") != nil {
		t.Fatal("a topic that the snapshot lacks is still there")
	}
}

// A data directory that Apache Kafka 4.4 wrote gives the cluster it held, whether from the
// newest snapshot or from the log alone.
func TestImageOfApacheKafkasDirectory(t *testing.T) {
	const from, dir = "../quorum/testdata/static", "d/__cluster_metadata-0"
	var offsets []int64
	for _, snapshots := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			f := vfs.NewMem()
			f.MkdirAll(dir)
			entries, _ := os.ReadDir(from)
			for _, e := range entries {
				if !snapshots && path.Ext(e.Name()) == ".checkpoint" && e.Name()[19] != '0' {
					continue
				}
				b, err := os.ReadFile(path.Join(from, e.Name()))
				if err != nil {
					t.Fatal(err)
				}
				h, _ := f.OpenFile(path.Join(dir, e.Name()), vfs.ReadWrite|vfs.Create)
				h.WriteAt(b, 0)
				h.Close()
			}
			log, _, err := commitlog.Open(commitlog.Options{FS: f, Dir: dir, TP: ids.TopicPartition{Topic: ids.MetadataTopic}, TopicID: ids.MetadataTopicID,
				Config: config.DefaultLog(), Now: time.Now, Random: rand.Uint64, MetadataLog: true})
			if err != nil {
				t.Fatal(err)
			}
			c := &controllerLog{}
			feed := New(Options{Now: time.Now, Controller: c, Fatal: func(err error) { t.Error(err) }})
			voters, _ := quorum.ParseVoters("1@h:1", "CONTROLLER")
			q, err := quorum.Open(quorum.Options{FS: f, Dir: dir, NodeID: 1, DirectoryID: ids.UUID{1}, Controller: true, Voters: voters,
				Log: log, Now: time.Now, Random: rand.Uint64, State: feed})
			if err != nil {
				t.Fatal(err)
			}
			q.Start()
			synctest.Wait()
			img := feed.Image()
			for _, name := range []string{"codec-none", "codec-lz4", "a.topic_with-names", "__consumer_offsets"} {
				if img.Topic(name) == nil {
					t.Errorf("topic %s is missing", name)
				}
			}
			if img.Broker(1) == nil || img.MetadataVersion() == 0 {
				t.Error("broker or metadata.version missing")
			}
			if !slices.Equal(c.calls, []string{"lead"}) {
				t.Errorf("controller was told %v", c.calls)
			}
			offsets = append(offsets, img.Offset())
			q.Close()
			feed.Close()
			log.Close()
		})
	}
	if offsets[0] != offsets[1] || offsets[0] < 380 {
		t.Fatalf("images end at %v", offsets)
	}
}
