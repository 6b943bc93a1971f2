//go:build compare

package compare

import (
	"os"
	"testing"

	"runnel/test/oracle"
)

// TestRunning plays the scenes against a running Apache Kafka and a running Runnel. RUNNEL_COMPARE_RECORD=1 keeps Kafka's
// answers as the recording.
func TestRunning(t *testing.T) {
	t.Cleanup(oracle.RemoveBuild)
	k, err := oracle.Fetch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := k.StartKafka(t.Context(), oracle.ClusterOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Kill()
	r, err := oracle.StartRunnel(t.Context(), oracle.RunnelOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Kill()
	for _, addr := range []string{c.Bootstrap, r.Addr} {
		if err := warm(addr); err != nil {
			t.Fatal(err)
		}
	}
	kafka := collect(c.Bootstrap, chosen(), 8)
	if os.Getenv("RUNNEL_COMPARE_RECORD") != "" {
		if err := writeRecording(recordingFile, kafka); err != nil {
			t.Fatal(err)
		}
	} else if recording, err := readRecording(recordingFile); err != nil {
		t.Error(err)
	} else {
		for _, sc := range chosen() {
			was := recording[sc.name]
			for i := range was { // the recording is Kafka's too: it names what Runnel does not serve
				was[i] = advertised(was[i])
			}
			for _, l := range partings(sc.name, kafka[sc.name], was) {
				t.Errorf("the recording (here called Runnel) is out of date: %s", l)
			}
		}
	}
	check(t, kafka, collect(r.Addr, chosen(), 8))
}
