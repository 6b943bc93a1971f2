package controller

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// semantics.md §14.3.
func TestAlterClientQuotas(t *testing.T) {
	type entity = kmsg.AlterClientQuotasRequestEntryEntity
	user := []entity{{Type: "user", Name: ptr("u")}}
	s := newSim(t, 1)
	for _, c := range []struct {
		why     string
		entity  []entity
		key     string
		value   float64
		remove  bool
		code    int16
		records int
	}{
		{"set", user, "producer_byte_rate", 1024, false, 0, 1},
		{"same", user, "producer_byte_rate", 1024, false, 0, 0},
		{"fraction of an integer", user, "producer_byte_rate", 1.5, false, 42, 0},
		{"fraction", user, "request_percentage", 1.5, false, 0, 1},
		{"zero", user, "request_percentage", 0, false, 42, 0},
		{"unknown key", user, "x", 1, false, 42, 0},
		{"ip key of a user", user, "connection_creation_rate", 1, false, 42, 0},
		{"empty", nil, "producer_byte_rate", 1, false, 42, 0},
		{"type", []entity{{Type: "x"}}, "producer_byte_rate", 1, false, 42, 0},
		{"empty name", []entity{{Type: "user", Name: ptr("")}}, "producer_byte_rate", 1, false, 42, 0},
		{"ip", []entity{{Type: "ip", Name: ptr("10.0.0.1")}}, "connection_creation_rate", 5, false, 0, 1},
		{"bad ip", []entity{{Type: "ip", Name: ptr("x y")}}, "connection_creation_rate", 5, false, 42, 0},
		{"ip and user", []entity{{Type: "ip"}, {Type: "user"}}, "connection_creation_rate", 5, false, 42, 0},
		{"remove", user, "producer_byte_rate", 0, true, 0, 1},
		{"remove again", user, "producer_byte_rate", 0, true, 0, 0},
	} {
		resp, records := s.decide(&kmsg.AlterClientQuotasRequest{Version: 1, Entries: []kmsg.AlterClientQuotasRequestEntry{{
			Entity: c.entity, Ops: []kmsg.AlterClientQuotasRequestEntryOp{{Key: c.key, Value: c.value, Remove: c.remove}}}}})
		if r := resp.(*kmsg.AlterClientQuotasResponse).Entries[0]; r.ErrorCode != c.code || len(records) != c.records {
			t.Errorf("%s: %+v, %d records", c.why, r, len(records))
		}
	}
	q := s.c.img.Quota(image.QuotaKey([]metarec.QuotaEntity{{EntityType: "user", EntityName: ptr("u")}}))
	if len(q.Values) != 1 || q.Values["request_percentage"] != 1.5 {
		t.Errorf("%+v", q)
	}
	s.replayed()
}

// semantics.md §14.4.
func TestAlterScram(t *testing.T) {
	s := newSim(t, 1)
	up := func(name string, mechanism int8, iterations int32) kmsg.AlterUserSCRAMCredentialsRequestUpsertion {
		return kmsg.AlterUserSCRAMCredentialsRequestUpsertion{Name: name, Mechanism: mechanism, Iterations: iterations, Salt: []byte("s"), SaltedPassword: []byte("p")}
	}
	ask := func(rq *kmsg.AlterUserSCRAMCredentialsRequest) int16 {
		r := s.do(rq).(*kmsg.AlterUserSCRAMCredentialsResponse)
		if len(r.Results) != 1 {
			t.Fatalf("%+v", r)
		}
		return r.Results[0].ErrorCode
	}
	type ups = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion
	type dels = []kmsg.AlterUserSCRAMCredentialsRequestDeletion
	for why, c := range map[string]struct {
		rq   kmsg.AlterUserSCRAMCredentialsRequest
		code *kerr.Error
	}{
		"mechanism": {kmsg.AlterUserSCRAMCredentialsRequest{Upsertions: ups{up("u", 3, 4096)}}, kerr.UnsupportedSaslMechanism},
		"few":       {kmsg.AlterUserSCRAMCredentialsRequest{Upsertions: ups{up("u", 1, 4095)}}, kerr.UnacceptableCredential},
		"many":      {kmsg.AlterUserSCRAMCredentialsRequest{Upsertions: ups{up("u", 1, 16385)}}, kerr.UnacceptableCredential},
		"no name":   {kmsg.AlterUserSCRAMCredentialsRequest{Upsertions: ups{up("", 1, 4096)}}, kerr.UnacceptableCredential},
		"twice":     {kmsg.AlterUserSCRAMCredentialsRequest{Upsertions: ups{up("u", 1, 4096), up("u", 2, 4096)}}, kerr.DuplicateResource},
		"missing":   {kmsg.AlterUserSCRAMCredentialsRequest{Deletions: dels{{Name: "u", Mechanism: 1}}}, kerr.ResourceNotFound},
	} {
		if got := ask(&c.rq); got != c.code.Code {
			t.Errorf("%s: %d", why, got)
		}
	}
	if code := ask(&kmsg.AlterUserSCRAMCredentialsRequest{Upsertions: ups{up("u", 1, 4096)}}); code != 0 {
		t.Fatal(code)
	}
	m := hmac.New(sha256.New, []byte("p"))
	m.Write([]byte("Client Key"))
	stored := sha256.Sum256(m.Sum(nil))
	if cred := s.c.img.Scram("u", 1); !bytes.Equal(cred.StoredKey, stored[:]) || len(cred.ServerKey) != 32 {
		t.Errorf("%+v", cred)
	}
	if code := ask(&kmsg.AlterUserSCRAMCredentialsRequest{Deletions: dels{{Name: "u", Mechanism: 1}}}); code != 0 || s.c.img.Scram("u", 1) != nil {
		t.Error(code)
	}
}

// semantics.md §15.1.
func TestACLs(t *testing.T) {
	s := newSim(t, 1)
	acl := func(f func(*kmsg.CreateACLsRequestCreation)) kmsg.CreateACLsRequestCreation {
		c := kmsg.CreateACLsRequestCreation{ResourceType: 2, ResourceName: "t", ResourcePatternType: 3, Principal: "User:u", Host: "*", Operation: 3, PermissionType: 3}
		if f != nil {
			f(&c)
		}
		return c
	}
	type creation = kmsg.CreateACLsRequestCreation
	for i, bad := range []func(*creation){
		func(c *creation) { c.ResourceType = 1 }, func(c *creation) { c.ResourcePatternType = 1 }, func(c *creation) { c.Operation = 0 },
		func(c *creation) { c.PermissionType = 1 }, func(c *creation) { c.ResourceName = "" }, func(c *creation) { c.ResourceType = 4 },
		func(c *creation) { c.Principal = "u" }, func(c *creation) { c.Host = "" }, func(c *creation) { c.Host = "10.0.0.0/99" },
	} {
		r := s.do(&kmsg.CreateACLsRequest{Version: 3, Creations: []creation{acl(bad)}}).(*kmsg.CreateACLsResponse)
		if r.Results[0].ErrorCode != kerr.InvalidRequest.Code {
			t.Errorf("case %d: %+v", i, r)
		}
	}
	good := []creation{acl(nil), acl(nil), acl(func(c *creation) { c.ResourceName, c.ResourcePatternType = "t", 4 }), acl(func(c *creation) { c.ResourceName = "*" }), acl(func(c *creation) { c.Host = "10.0.0.0/8" })}
	if _, records := s.decide(&kmsg.CreateACLsRequest{Version: 3, Creations: good}); len(records) != 4 {
		t.Errorf("%d records, one is a duplicate", len(records))
	}
	if _, records := s.decide(&kmsg.CreateACLsRequest{Version: 3, Creations: good[:1]}); len(records) != 0 {
		t.Error("an existing ACL was written again")
	}
	del := func(f kmsg.DeleteACLsRequestFilter) (int, int16) {
		r := s.do(&kmsg.DeleteACLsRequest{Version: 3, Filters: []kmsg.DeleteACLsRequestFilter{f}}).(*kmsg.DeleteACLsResponse)
		return len(r.Results[0].MatchingACLs), r.Results[0].ErrorCode
	}
	any := kmsg.DeleteACLsRequestFilter{ResourceType: 1, ResourcePatternType: 1, Operation: 1, PermissionType: 1}
	for _, c := range []struct {
		why    string
		change func(*kmsg.DeleteACLsRequestFilter)
		n      int
		code   int16
	}{
		{"unknown", func(f *kmsg.DeleteACLsRequestFilter) { f.Operation = 0 }, 0, 42},
		{"other name", func(f *kmsg.DeleteACLsRequestFilter) { f.ResourceName = ptr("x") }, 0, 0},
		{"literal star", func(f *kmsg.DeleteACLsRequestFilter) { f.ResourcePatternType, f.ResourceName = 3, ptr("*") }, 1, 0},
		{"all that affect", func(f *kmsg.DeleteACLsRequestFilter) { f.ResourcePatternType, f.ResourceName = 2, ptr("t1") }, 1, 0},
		{"rest", func(*kmsg.DeleteACLsRequestFilter) {}, 2, 0},
	} {
		f := any
		c.change(&f)
		if n, code := del(f); n != c.n || code != c.code {
			t.Errorf("%s: %d matches, code %d", c.why, n, code)
		}
	}
	s.replayed()
}
