package controller

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"math"
	"net/netip"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/image"
	"runnel/internal/meta/metarec"
)

// integerQuotas are whole numbers up to the given bound; the other known keys are any
// positive number.
var integerQuotas = map[string]float64{
	"producer_byte_rate": math.MaxInt64, "consumer_byte_rate": math.MaxInt64, "connection_creation_rate": math.MaxInt32,
}

// alterClientQuotas serves AlterClientQuotas (semantics.md §14.3).
func (c *core) alterClientQuotas(rq *Request, body *kmsg.AlterClientQuotasRequest) result {
	resp := body.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	res := result{response: resp, atomic: true}
	allowed := c.onCluster(rq, opAlterConfigs)
	count := map[string]int{}
	entities := make([][]metarec.QuotaEntity, len(body.Entries))
	for i, e := range body.Entries {
		for _, part := range e.Entity {
			entities[i] = append(entities[i], metarec.QuotaEntity{EntityType: part.Type, EntityName: part.Name})
		}
		count[image.QuotaKey(entities[i])]++
	}
	for i, e := range body.Entries {
		key := image.QuotaKey(entities[i])
		var records []metarec.Record
		var err *apiError
		switch {
		case !allowed:
			err = plain(kerr.ClusterAuthorizationFailed)
		case count[key] > 1:
			err = fail(kerr.InvalidRequest, "Entity is specified more than once.")
		default:
			records, err = c.alterQuota(key, entities[i], e.Ops)
		}
		if err == nil && len(res.records)+len(records) > MaxRecords {
			records, err = nil, errTooManyRecords
		}
		res.records = append(res.records, records...)
		out := kmsg.NewAlterClientQuotasResponseEntry()
		out.ErrorCode, out.ErrorMessage = err.code(), err.message()
		for _, part := range e.Entity {
			out.Entity = append(out.Entity, kmsg.AlterClientQuotasResponseEntryEntity{Type: part.Type, Name: part.Name})
		}
		resp.Entries = append(resp.Entries, out)
	}
	if body.ValidateOnly {
		res.records = nil
	}
	return res
}

func checkQuotaEntity(entity []metarec.QuotaEntity) *apiError {
	if len(entity) == 0 {
		return fail(kerr.InvalidRequest, "Invalid empty client quota entity")
	}
	seen := map[string]bool{}
	for _, part := range entity {
		switch {
		case part.EntityType != "user" && part.EntityType != "client-id" && part.EntityType != "ip":
			return fail(kerr.InvalidRequest, "Unhandled client quota entity type: %s", part.EntityType)
		case part.EntityName != nil && *part.EntityName == "":
			return fail(kerr.InvalidRequest, "Empty %s not supported", part.EntityType)
		case seen[part.EntityType]:
			return fail(kerr.InvalidRequest, "Client quota entity type %s is specified more than once", part.EntityType)
		case part.EntityType == "ip" && part.EntityName != nil && !isAddress(*part.EntityName):
			return fail(kerr.InvalidRequest, "%s is not a valid IP or resolvable host.", *part.EntityName)
		}
		seen[part.EntityType] = true
	}
	if seen["ip"] && len(seen) > 1 {
		return fail(kerr.InvalidRequest, "Invalid quota entity combination, entity type ip may not be combined with user or client-id")
	}
	return nil
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func (c *core) alterQuota(key string, entity []metarec.QuotaEntity, ops []kmsg.AlterClientQuotasRequestEntryOp) ([]metarec.Record, *apiError) {
	if err := checkQuotaEntity(entity); err != nil {
		return nil, err
	}
	isIP := entity[0].EntityType == "ip"
	var records []metarec.Record
	for _, op := range ops {
		bound, whole := integerQuotas[op.Key]
		known := whole || op.Key == "request_percentage" || op.Key == "controller_mutation_rate"
		switch {
		case !known || isIP != (op.Key == "connection_creation_rate"):
			return nil, fail(kerr.InvalidRequest, "Invalid configuration key %s", op.Key)
		case op.Remove:
			if q := c.img.Quota(key); q == nil {
				continue
			} else if _, ok := q.Values[op.Key]; !ok {
				continue
			}
		case math.IsNaN(op.Value) || op.Value <= 0:
			return nil, fail(kerr.InvalidRequest, "Quota %s must be greater than 0", op.Key)
		case whole && (op.Value > bound || math.Abs(op.Value-math.Round(op.Value)) > 1e-6):
			return nil, fail(kerr.InvalidRequest, "Configuration %s must be a whole number of at most %.0f", op.Key, bound)
		default:
			if q := c.img.Quota(key); q != nil && q.Values[op.Key] == op.Value {
				continue
			}
		}
		r := &metarec.ClientQuota{Entity: entity, Key: op.Key, Value: op.Value, Remove: op.Remove}
		if op.Remove {
			r.Value = 0
		}
		records = append(records, r)
	}
	return records, nil
}

// scramHash gives the hash of a SCRAM mechanism, nil for an unknown one.
func scramHash(mechanism int8) func() hash.Hash {
	switch mechanism {
	case 1:
		return sha256.New
	case 2:
		return sha512.New
	}
	return nil
}

const minScramIterations, maxScramIterations = 4096, 16384

// alterScram serves AlterUserScramCredentials (semantics.md §14.4).
func (c *core) alterScram(rq *Request, body *kmsg.AlterUserSCRAMCredentialsRequest) result {
	resp := body.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	res := result{response: resp, atomic: true}
	allowed := c.onCluster(rq, opAlter)
	count := map[string]int{}
	for _, d := range body.Deletions {
		count[d.Name]++
	}
	for _, u := range body.Upsertions {
		count[u.Name]++
	}
	add := func(user string, decide func() (metarec.Record, *apiError)) {
		if count[user] < 0 {
			return
		}
		var r metarec.Record
		var err *apiError
		switch {
		case !allowed:
			err = plain(kerr.ClusterAuthorizationFailed)
		case count[user] > 1:
			err = fail(kerr.DuplicateResource, "A user credential cannot be altered twice in the same request")
		case user == "":
			err = fail(kerr.UnacceptableCredential, "Username must not be empty")
		default:
			r, err = decide()
		}
		count[user] = -1
		if err == nil {
			res.records = append(res.records, r)
		}
		out := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		out.User, out.ErrorCode, out.ErrorMessage = user, err.code(), err.message()
		resp.Results = append(resp.Results, out)
	}
	for _, d := range body.Deletions {
		add(d.Name, func() (metarec.Record, *apiError) {
			switch {
			case scramHash(d.Mechanism) == nil:
				return nil, fail(kerr.UnsupportedSaslMechanism, "Unknown SCRAM mechanism")
			case c.img.Scram(d.Name, d.Mechanism) == nil:
				return nil, fail(kerr.ResourceNotFound, "Attempt to delete a user credential that does not exist")
			}
			return &metarec.RemoveUserScramCredential{Name: d.Name, Mechanism: d.Mechanism}, nil
		})
	}
	for i := range body.Upsertions {
		u := &body.Upsertions[i]
		add(u.Name, func() (metarec.Record, *apiError) { return scramRecord(u) })
	}
	return res
}

func scramRecord(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) (metarec.Record, *apiError) {
	h := scramHash(u.Mechanism)
	switch {
	case h == nil:
		return nil, fail(kerr.UnsupportedSaslMechanism, "Unknown SCRAM mechanism")
	case u.Iterations < minScramIterations:
		return nil, fail(kerr.UnacceptableCredential, "Too few iterations")
	case u.Iterations > maxScramIterations:
		return nil, fail(kerr.UnacceptableCredential, "Too many iterations")
	}
	mac := func(text string) []byte {
		m := hmac.New(h, u.SaltedPassword)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
	stored := h()
	stored.Write(mac("Client Key"))
	return &metarec.UserScramCredential{
		Name: u.Name, Mechanism: u.Mechanism, Salt: u.Salt, StoredKey: stored.Sum(nil), ServerKey: mac("Server Key"), Iterations: u.Iterations,
	}, nil
}
