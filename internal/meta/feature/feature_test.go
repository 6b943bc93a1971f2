package feature

import "testing"

func TestMetadataNames(t *testing.T) {
	for _, c := range []struct {
		level int16
		name  string
	}{{7, "3.3-IV3"}, {13, "3.6-IV1"}, {17, "3.7-IV2"}, {23, "4.0-IV1"}, {30, "4.3-IV0"}, {33, "4.4-IV2"}} {
		if got := MetadataName(c.level); got != c.name {
			t.Errorf("level %d is %s, want %s", c.level, got, c.name)
		}
		if got, err := ParseMetadata(c.name); err != nil || got != c.level {
			t.Errorf("%s is level %d (%v), want %d", c.name, got, err, c.level)
		}
	}
	for s, want := range map[string]int16{"4.4": 33, "4.4.0": 33, "4.0": 25, "3.7": 19} {
		if got, err := ParseMetadata(s); err != nil || got != want {
			t.Errorf("%s is level %d (%v), want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "3.0-IV1", "4", "5.0", "4.4-IV9"} {
		if got, err := ParseMetadata(s); err == nil {
			t.Errorf("%q is level %d, want an error", s, got)
		}
	}
}

func TestLosesMetadata(t *testing.T) {
	for _, c := range []struct {
		from, to int16
		want     bool
	}{{33, 32, true}, {31, 30, false}, {30, 29, true}, {29, 23, false}, {24, 22, true}, {20, 20, false}} {
		if got := LosesMetadata(c.from, c.to); got != c.want {
			t.Errorf("%d to %d: %v", c.from, c.to, got)
		}
	}
}

func TestBootstrap(t *testing.T) {
	b := Bootstrap(33)
	for name, want := range map[string]int16{Transaction: 2, Group: 1, ELR: 1, Share: 2, Streams: 1} {
		if b[name] != want {
			t.Errorf("%s starts at %d, want %d", name, b[name], want)
		}
	}
	if b := Bootstrap(25); b[ELR] != 0 || b[Share] != 0 || b[Group] != 1 {
		t.Errorf("at 4.0: %v", b)
	}
}
