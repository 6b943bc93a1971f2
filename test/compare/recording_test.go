package compare

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/runnel"
)

// recordingFile holds what Apache Kafka 4.4.0 answered: a line for each scene.
const recordingFile = "testdata/kafka.json.gz"

type recorded struct {
	Scene string `json:"scene"`
	Steps []step `json:"steps"`
}

func readRecording(name string) (map[string][]step, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	out := map[string][]step{}
	for d := json.NewDecoder(z); d.More(); {
		var r recorded
		if err := d.Decode(&r); err != nil {
			return nil, err
		}
		out[r.Scene] = r.Steps
	}
	return out, nil
}

func writeRecording(name string, played map[string][]step) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	z, _ := gzip.NewWriterLevel(f, gzip.BestCompression)
	e := json.NewEncoder(z)
	e.SetEscapeHTML(false)
	for _, sc := range scenes {
		if err := e.Encode(recorded{sc.name, played[sc.name]}); err != nil {
			return err
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

func collect(addr string, sc []scene, width int) map[string][]step {
	out := map[string][]step{}
	playAll(addr, sc, width, func(s scene, steps []step) { out[s.name] = steps })
	return out
}

// partings lists where a scene's answers differ, without what is meant.
func partings(sc string, kafka, ours []step) []string {
	var out []string
	for i, k := range kafka {
		if i >= len(ours) {
			return append(out, fmt.Sprintf("%s: %s: Runnel did not get there", sc, k.Step))
		}
		k, o := advertised(k), ours[i]
		at := fmt.Sprintf("%s: %s: %s", sc, k.Step, k.Request)
		if k.Step != o.Step {
			return append(out, fmt.Sprintf("%s: Runnel is at %q (%s)", at, o.Step, o.How))
		}
		var lines []string
		if k.How != o.How {
			lines = []string{fmt.Sprintf("%s: Kafka %s %s, Runnel %s %s", at, k.How, brief(k.Body), o.How, brief(o.Body))}
		} else {
			if k.Note != o.Note {
				lines = append(lines, fmt.Sprintf("%s: encoding: Kafka %q, Runnel %q", at, k.Note, o.Note))
			}
			for _, d := range differ("", k.Body, o.Body) {
				lines = append(lines, at+": "+d)
			}
		}
		for _, l := range lines {
			if !isMeant(l) {
				out = append(out, l)
			}
		}
	}
	if len(ours) > len(kafka) {
		out = append(out, fmt.Sprintf("%s: %s: Runnel goes on (%s)", sc, ours[len(kafka)].Step, ours[len(kafka)].How))
	}
	return out
}

// chosen are the scenes whose names contain RUNNEL_COMPARE_SCENES, a comma-separated list; all by default.
func chosen() []scene {
	want := os.Getenv("RUNNEL_COMPARE_SCENES")
	if want == "" {
		return scenes
	}
	var out []scene
	for _, s := range scenes {
		if slices.ContainsFunc(strings.Split(want, ","), func(w string) bool { return strings.Contains(s.name, w) }) {
			out = append(out, s)
		}
	}
	return out
}

func TestRecording(t *testing.T) {
	want, err := readRecording(recordingFile)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	n, err := runnel.Start(ctx, runnel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if err := warm(n.Bootstrap()); err != nil {
		t.Fatal(err)
	}
	check(t, want, collect(n.Bootstrap(), chosen(), 16))
}

// check reports every difference between two runs of the chosen scenes.
func check(t *testing.T, kafka, ours map[string][]step) {
	t.Helper()
	steps := 0
	for _, sc := range chosen() {
		if kafka[sc.name] == nil {
			t.Errorf("%s is not in the recording; make compare with RUNNEL_COMPARE_RECORD=1 makes it anew", sc.name)
			continue
		}
		steps += len(kafka[sc.name])
		for _, l := range partings(sc.name, kafka[sc.name], ours[sc.name]) {
			t.Error(l)
		}
	}
	t.Logf("%d scenes, %d steps", len(chosen()), steps)
}

// unserved are APIs that Apache Kafka advertises and Runnel does not serve yet, so does not advertise.
var unserved = map[kmsg.Key]string{
	kmsg.SASLHandshake: security, kmsg.SASLAuthenticate: security, kmsg.DescribeACLs: security, kmsg.CreateACLs: security,
	kmsg.DeleteACLs: security, kmsg.CreateDelegationToken: security, kmsg.RenewDelegationToken: security,
	kmsg.ExpireDelegationToken: security, kmsg.DescribeDelegationToken: security, kmsg.DescribeUserSCRAMCredentials: security,
	kmsg.AlterUserSCRAMCredentials: security, kmsg.DescribeClientQuotas: security, kmsg.AlterClientQuotas: security,
	kmsg.AddPartitionsToTxn: transactions, kmsg.AddOffsetsToTxn: transactions, kmsg.EndTxn: transactions,
	kmsg.WriteTxnMarkers: transactions, kmsg.TxnOffsetCommit: transactions, kmsg.DescribeTransactions: transactions,
	kmsg.ListTransactions: transactions, kmsg.ConsumerGroupHeartbeat: newGroups, kmsg.ConsumerGroupDescribe: newGroups,
	kmsg.ShareGroupHeartbeat: newGroups, kmsg.ShareGroupDescribe: newGroups, kmsg.ShareFetch: newGroups,
	kmsg.ShareAcknowledge: newGroups, kmsg.InitializeShareGroupState: newGroups, kmsg.ReadShareGroupState: newGroups,
	kmsg.WriteShareGroupState: newGroups, kmsg.DeleteShareGroupState: newGroups, kmsg.ReadShareGroupStateSummary: newGroups,
	kmsg.StreamsGroupHeartbeat: newGroups, kmsg.StreamsGroupDescribe: newGroups, kmsg.DescribeShareGroupOffsets: newGroups,
	kmsg.AlterShareGroupOffsets: newGroups, kmsg.DeleteShareGroupOffsets: newGroups, 93: newGroups,
	kmsg.AddRaftVoter: membership, kmsg.RemoveRaftVoter: membership, 94: membership,
}

const (
	security     = "there is no security yet"
	transactions = "there are no transactions yet"
	newGroups    = "there are only classic groups yet"
	membership   = "a quorum's members do not change yet"
)

// advertised takes what is not served yet out of the list that Kafka advertises.
func advertised(s step) step {
	body, ok := s.Body.(map[string]any)
	if !ok || !strings.HasPrefix(s.Request, "ApiVersions") {
		return s
	}
	keys, ok := body["ApiKeys"].([]any)
	if !ok {
		return s
	}
	body["ApiKeys"] = slices.DeleteFunc(slices.Clone(keys), func(k any) bool {
		n, _ := k.(map[string]any)["ApiKey"].(float64)
		return unserved[kmsg.Key(n)] != ""
	})
	return s
}
