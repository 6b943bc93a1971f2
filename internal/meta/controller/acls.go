package controller

import (
	"net/netip"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/meta/metarec"
)

// Enum values of ACLs.
const (
	aclAny       = 1
	patternMatch = 2
	literal      = 3
	prefixed     = 4

	maxResourceType = 7
	maxOperation    = 15
	cidrHosts       = int16(32) // metadata.version that allows CIDR hosts (KIP-1276)
)

// ACLFilter selects access control entries; it serves DescribeAcls too.
type ACLFilter struct {
	ResourceType int8
	Name         *string
	Pattern      int8
	Principal    *string
	Host         *string
	Operation    int8
	Permission   int8
}

// Valid reports that no field has an unknown value.
func (f *ACLFilter) Valid() bool {
	return f.ResourceType >= 1 && f.ResourceType <= maxResourceType && f.Pattern >= 1 && f.Pattern <= prefixed &&
		f.Operation >= 1 && f.Operation <= maxOperation && f.Permission >= 1 && f.Permission <= 3
}

// Matches reports whether an entry is selected. The pattern MATCH selects all that affect a name.
func (f *ACLFilter) Matches(a *metarec.AccessControlEntry) bool {
	is := func(want, have int8) bool { return want == aclAny || want == have }
	same := func(want *string, have string) bool { return want == nil || *want == have }
	if !is(f.ResourceType, a.ResourceType) || !is(f.Operation, a.Operation) || !is(f.Permission, a.PermissionType) ||
		!same(f.Principal, a.Principal) || !same(f.Host, a.Host) {
		return false
	}
	if f.Pattern == patternMatch && f.Name != nil {
		if a.PatternType == prefixed {
			return strings.HasPrefix(*f.Name, a.ResourceName)
		}
		return a.ResourceName == *f.Name || a.ResourceName == "*"
	}
	return same(f.Name, a.ResourceName) && (f.Pattern == patternMatch || is(f.Pattern, a.PatternType))
}

// createACLs serves CreateAcls (semantics.md §15.1).
func (c *core) createACLs(rq *Request, body *kmsg.CreateACLsRequest) result {
	resp := body.ResponseKind().(*kmsg.CreateACLsResponse)
	res := result{response: resp, atomic: true}
	allowed := c.onCluster(rq, opAlter)
	have := map[metarec.AccessControlEntry]bool{}
	for a := range c.img.ACLs() {
		key := *a
		key.ID = [16]byte{}
		have[key] = true
	}
	for i := range body.Creations {
		n := &body.Creations[i]
		a := metarec.AccessControlEntry{
			ResourceType: int8(n.ResourceType), ResourceName: n.ResourceName, PatternType: int8(n.ResourcePatternType), Principal: n.Principal,
			Host: n.Host, Operation: int8(n.Operation), PermissionType: int8(n.PermissionType),
		}
		err := c.checkACL(&a)
		if !allowed {
			err = plain(kerr.ClusterAuthorizationFailed)
		}
		if err == nil && !have[a] {
			if len(res.records) >= MaxRecords {
				err = errTooManyRecords
			} else {
				have[a] = true
				a.ID = c.newUUID()
				res.records = append(res.records, &a)
			}
		}
		out := kmsg.NewCreateACLsResponseResult()
		out.ErrorCode, out.ErrorMessage = err.code(), err.message()
		resp.Results = append(resp.Results, out)
	}
	return res
}

func (c *core) checkACL(a *metarec.AccessControlEntry) *apiError {
	kind, _, hasKind := strings.Cut(a.Principal, ":")
	switch {
	case a.ResourceType <= aclAny || a.ResourceType > maxResourceType:
		return fail(kerr.InvalidRequest, "Invalid resourceType %d", a.ResourceType)
	case a.PatternType != literal && a.PatternType != prefixed:
		return fail(kerr.InvalidRequest, "Invalid patternType %d", a.PatternType)
	case a.Operation <= aclAny || a.Operation > maxOperation:
		return fail(kerr.InvalidRequest, "Invalid operation %d", a.Operation)
	case a.PermissionType != 2 && a.PermissionType != 3:
		return fail(kerr.InvalidRequest, "Invalid permissionType %d", a.PermissionType)
	case a.ResourceName == "":
		return fail(kerr.InvalidRequest, "Resource name should not be empty")
	case a.ResourceType == onCluster && a.ResourceName != clusterName:
		return fail(kerr.InvalidRequest, "The only valid name for the CLUSTER resource is %s", clusterName)
	case !hasKind || kind == "":
		return fail(kerr.InvalidRequest, "Could not parse principal from `%s` (no colon is present separating the principal type from the principal name)", a.Principal)
	case a.Host == "":
		return fail(kerr.InvalidRequest, "Host should not be empty")
	case !strings.Contains(a.Host, "/"):
		return nil
	}
	if _, err := netip.ParsePrefix(a.Host); err != nil {
		return fail(kerr.InvalidRequest, "Invalid CIDR range %s", a.Host)
	}
	if c.img.MetadataVersion() < cidrHosts {
		return fail(kerr.UnsupportedVersion, "CIDR ranges need a higher metadata.version")
	}
	return nil
}

// deleteACLs serves DeleteAcls.
func (c *core) deleteACLs(rq *Request, body *kmsg.DeleteACLsRequest) result {
	resp := body.ResponseKind().(*kmsg.DeleteACLsResponse)
	res := result{response: resp, atomic: true}
	allowed := c.onCluster(rq, opAlter)
	gone := map[[16]byte]bool{}
	for _, rf := range body.Filters {
		f := ACLFilter{int8(rf.ResourceType), rf.ResourceName, int8(rf.ResourcePatternType), rf.Principal, rf.Host, int8(rf.Operation), int8(rf.PermissionType)}
		out := kmsg.NewDeleteACLsResponseResult()
		var err *apiError
		switch {
		case !allowed:
			err = plain(kerr.ClusterAuthorizationFailed)
		case !f.Valid():
			err = fail(kerr.InvalidRequest, "The filter has an unknown value")
		default:
			var found []*metarec.AccessControlEntry
			for a := range c.img.ACLs() {
				if f.Matches(a) {
					found = append(found, a)
				}
			}
			if len(found)+len(res.records) > MaxRecords {
				err = fail(kerr.InvalidRequest, "Cannot remove more than %d acls in a single delete operation.", MaxRecords)
				break
			}
			for _, a := range found {
				if !gone[a.ID] {
					gone[a.ID] = true
					res.records = append(res.records, &metarec.RemoveAccessControlEntry{ID: a.ID})
				}
				m := kmsg.NewDeleteACLsResponseResultMatchingACL()
				m.ResourceType, m.ResourceName, m.ResourcePatternType = kmsg.ACLResourceType(a.ResourceType), a.ResourceName, kmsg.ACLResourcePatternType(a.PatternType)
				m.Principal, m.Host, m.Operation, m.PermissionType = a.Principal, a.Host, kmsg.ACLOperation(a.Operation), kmsg.ACLPermissionType(a.PermissionType)
				out.MatchingACLs = append(out.MatchingACLs, m)
			}
		}
		out.ErrorCode, out.ErrorMessage = err.code(), err.message()
		resp.Results = append(resp.Results, out)
	}
	return res
}
