package controller

import (
	"errors"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

func configSim(t *testing.T) *sim {
	s := newSim(t, 2, func(o *Options) {
		o.ListKey = func(_ int8, name string) bool { return name == "cleanup.policy" }
		o.Default = func(int8, string) (string, bool) { return "delete", true }
		o.ValidateTopic = func(m map[string]string) error {
			if m["max"] != "" && m["max"] < m["min"] {
				return errors.New("min is above max")
			}
			return nil
		}
	})
	s.create("t", []int32{1, 2})
	return s
}

// semantics.md §14.2.
func TestIncrementalAlterConfigs(t *testing.T) {
	s := configSim(t)
	v := func(x string) *string { return &x }
	for _, c := range []struct {
		why            string
		typ            int8
		resource       string
		op             int8
		key            string
		value          *string
		code           *kerr.Error
		records        int
		stored, absent string
	}{
		{"set", 2, "t", 0, "min", v("5"), nil, 1, "5", ""},
		{"same value", 2, "t", 0, "min", v("5"), nil, 0, "5", ""},
		{"whole set is checked", 2, "t", 0, "max", v("4"), kerr.InvalidConfig, 0, "", "max"},
		{"delete", 2, "t", 1, "min", nil, nil, 1, "", "min"},
		{"delete what is not there", 2, "t", 1, "min", nil, nil, 0, "", "min"},
		{"null", 2, "t", 0, "min", nil, kerr.InvalidRequest, 0, "", "min"},
		{"append to the default", 2, "t", 2, "cleanup.policy", v("compact"), nil, 1, "delete,compact", ""},
		{"append what is there", 2, "t", 2, "cleanup.policy", v("compact"), nil, 0, "delete,compact", ""},
		{"subtract", 2, "t", 3, "cleanup.policy", v("delete"), nil, 1, "compact", ""},
		{"append to no list", 2, "t", 2, "min", v("1"), kerr.InvalidConfig, 0, "", "min"},
		{"operation", 2, "t", 9, "min", v("1"), kerr.InvalidRequest, 0, "", "min"},
		{"no such topic", 2, "x", 0, "min", v("1"), kerr.UnknownTopicOrPartition, 0, "", ""},
		{"bad topic name", 2, "a b", 0, "min", v("1"), kerr.InvalidTopicException, 0, "", ""},
		{"broker", 4, "1", 0, "any", v("1"), nil, 1, "1", ""},
		{"broker, same value", 4, "1", 0, "any", v("1"), nil, 1, "1", ""},
		{"all brokers", 4, "", 0, "any", v("1"), nil, 1, "1", ""},
		{"broker name", 4, "x", 0, "any", v("1"), kerr.InvalidRequest, 0, "", ""},
		{"unknown broker", 4, "7", 0, "any", v("1"), kerr.BrokerIDNotRegistered, 0, "", ""},
		{"metrics name", 16, "", 0, "any", v("1"), kerr.InvalidRequest, 0, "", ""},
		{"group", 32, "g", 0, "any", v("1"), nil, 1, "1", ""},
		{"logger", 8, "1", 0, "any", v("1"), kerr.InvalidRequest, 0, "", ""},
		{"ELR: broker minimum", 4, "1", 0, minISRKey, v("2"), kerr.InvalidConfig, 0, "", minISRKey},
		{"ELR: cluster minimum must stay", 4, "", 1, minISRKey, nil, kerr.InvalidConfig, 0, "", ""},
		{"ELR: cluster minimum", 4, "", 0, minISRKey, v("2"), nil, 2, "2", ""},
		{"ELR: topic minimum", 2, "t", 0, minISRKey, v("2"), nil, 2, "2", ""},
	} {
		resp, records := s.decide(alter(c.typ, c.resource, c.op, c.key, c.value))
		r := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0]
		want := int16(0)
		if c.code != nil {
			want = c.code.Code
		}
		stored, has := s.c.img.Config(c.typ, c.resource)[c.key]
		if r.ErrorCode != want || len(records) != c.records || stored != c.stored && c.stored != "" || has && c.absent == c.key {
			t.Errorf("%s: %+v, %d records, stored %q", c.why, r, len(records), stored)
		}
	}
	rq := alter(2, "t", 0, "min", v("9"))
	rq.ValidateOnly = true
	if _, records := s.decide(rq); len(records) != 0 {
		t.Error("validate only wrote")
	}
	rq.Resources = append(rq.Resources, rq.Resources[0])
	for _, r := range s.do(rq).(*kmsg.IncrementalAlterConfigsResponse).Resources {
		if r.ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("a resource twice: %+v", r)
		}
	}
	s.replayed()
}

func TestAlterConfigsReplacesTheSet(t *testing.T) {
	s := configSim(t)
	s.setConfig(2, "t", "a", "1")
	s.setConfig(2, "t", "b", "2")
	s.do(&kmsg.AlterConfigsRequest{Resources: []kmsg.AlterConfigsRequestResource{{ResourceType: 2, ResourceName: "t",
		Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "b", Value: ptr("2")}, {Name: "c", Value: ptr("3")}}}}})
	if got := s.c.img.Config(2, "t"); !maps.Equal(got, map[string]string{"b": "2", "c": "3"}) {
		t.Errorf("%v", got)
	}
}

// A new minimum clears ELRs (metadata-records.md §8).
func TestMinISRChangeClearsELR(t *testing.T) {
	s := configSim(t)
	s.setConfig(2, "t", minISRKey, "2")
	s.fence(2)
	s.want("t", 0, 1, []int32{1}, []int32{2})
	s.setConfig(2, "t", minISRKey, "1")
	s.want("t", 0, 1, []int32{1}, nil)
}

// semantics.md §14.5, metadata-records.md §4.
func TestUpdateFeatures(t *testing.T) {
	ask := func(s *sim, version int16, updates ...kmsg.UpdateFeaturesRequestFeatureUpdate) *kmsg.UpdateFeaturesResponse {
		return s.do(&kmsg.UpdateFeaturesRequest{Version: version, FeatureUpdates: updates}).(*kmsg.UpdateFeaturesResponse)
	}
	up := func(name string, level int16, typ int8) kmsg.UpdateFeaturesRequestFeatureUpdate {
		return kmsg.UpdateFeaturesRequestFeatureUpdate{Feature: name, MaxVersionLevel: level, UpgradeType: typ}
	}
	for name, c := range map[string]kmsg.UpdateFeaturesRequestFeatureUpdate{
		"unknown":              up("x.version", 1, 1),
		"too high":             up(feature.MetadataVersion, 34, 1),
		"negative":             up(feature.Group, -1, 2),
		"downgrade as up":      up(feature.Group, 0, 1),
		"upgrade as down":      up(feature.Share, 3, 2),
		"loses metadata":       up(feature.MetadataVersion, 29, 2),
		"loses, unsafe":        up(feature.MetadataVersion, 29, 3),
		"kraft without quorum": up(feature.KRaftVersion, 1, 1),
	} {
		s := newSim(t, 1)
		before := s.c.img.Offset()
		r := ask(s, 1, up(feature.Transaction, 1, 2), c)
		if r.ErrorCode != kerr.InvalidUpdateVersion.Code || r.ErrorMessage == nil || len(r.Results) != 0 || s.c.img.Offset() != before {
			t.Errorf("%s: %+v", name, r)
		}
	}
	s := newSim(t, 2, noELR)
	s.setConfig(4, "1", minISRKey, "2")
	if r := ask(s, 1, up(feature.ELR, 1, 1)); r.ErrorCode != 0 || len(r.Results) != 1 {
		t.Errorf("%+v", r)
	}
	if v := s.c.img.Config(image.BrokerConfig, "")[minISRKey]; v != "1" || !s.c.img.ELREnabled() || s.c.img.Config(image.BrokerConfig, "1") != nil {
		t.Errorf("ELR is on with minimum %q, broker configs %v", v, s.c.img.Config(image.BrokerConfig, "1"))
	}
	if r := ask(s, 2, up(feature.ELR, 0, 2)); r.ErrorCode != 0 || r.Results != nil || s.c.img.ELREnabled() {
		t.Errorf("%+v", r)
	}
	old := newSim(t, 0, func(o *Options) {
		o.Bootstrap = []metarec.Record{&metarec.FeatureLevel{Name: feature.MetadataVersion, FeatureLevel: 20}}
	})
	if r := ask(old, 1, up(feature.ELR, 1, 1)); r.ErrorCode != kerr.InvalidUpdateVersion.Code {
		t.Errorf("ELR at 3.8: %+v", r)
	}
	if r := ask(old, 1, up(feature.ELR, 1, 1), up(feature.MetadataVersion, 33, 1)); r.ErrorCode != 0 || old.c.img.MetadataVersion() != 33 {
		t.Errorf("with metadata.version: %+v", r)
	}
	rq := registration(1, 1, -1)
	rq.Features[0].MaxSupportedVersion = 33
	rq.Features[5].MaxSupportedVersion = 1
	old.do(rq)
	if r := ask(old, 1, up(feature.Share, 2, 1)); r.ErrorCode != kerr.InvalidUpdateVersion.Code {
		t.Errorf("a broker does not support it: %+v", r)
	}
	s.replayed()
}
