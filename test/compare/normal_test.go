package compare

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// naming gives a scene's freely chosen values names in order of first appearance, so that where an answer repeats a value
// both brokers must.
type naming struct {
	host, port string
	scene      string
	given      map[string]string
	used       map[string]int
}

func newNaming(addr, scene string) *naming {
	h, p, _ := net.SplitHostPort(addr)
	return &naming{host: h, port: p, scene: scene, given: map[string]string{}, used: map[string]int{}}
}

func (n *naming) name(kind, v string, final bool) string {
	if s, ok := n.given[kind+v]; ok {
		return s
	}
	if !final {
		return "<" + kind + ">"
	}
	n.used[kind]++
	s := fmt.Sprintf("<%s %d>", kind, n.used[kind])
	n.given[kind+v] = s
	return s
}

// Lists of structs have no order but these.
var ordered = map[string]bool{
	"ConfigSynonyms": true, "ErrorRecords": true, "AbortedTransactions": true, "DescribeTopicPartitionsResponse.Topics": true,
	"DescribeTopicPartitionsResponseTopic.Partitions": true, "RecordBatches": true,
}

// Lists of numbers and strings without an order.
var unordered = map[string]bool{
	"ISR": true, "OfflineReplicas": true, "EligibleLeaderReplicas": true, "LastKnownELR": true, "Partitions": true,
	"AddingReplicas": true, "RemovingReplicas": true,
}

// Lists of all there is, of which only what is the scene's own (by this field) is kept.
var listings = map[string]string{
	"ListGroupsResponse.Groups": "Group", "MetadataResponse.Topics": "Topic", "DescribeLogDirsResponseDir.Topics": "Topic",
	"DescribeTopicPartitionsResponse.Topics": "Topic", "ListConfigResourcesResponse.ConfigResources": "Name",
	"ElectLeadersResponse.Topics": "Topic", "ListPartitionReassignmentsResponse.Topics": "Topic",
}

// idFields are freely chosen numbers: 0 and below have a meaning of their own.
var idFields = map[string]string{"ProducerID": "producer", "SessionID": "session"}

// vagueFields are compared by sign only.
var vagueFields = map[string]bool{
	"ThrottleMillis": true, "FinalizedFeaturesEpoch": true, "DescribeQuorumResponseTopicPartition.HighWatermark": true,
	"DescribeQuorumResponseTopicPartition.LeaderEpoch": true, "DescribeQuorumResponseTopicPartitionReplicaState.LogEndOffset": true,
	"TotalBytes": true, "UsableBytes": true, "MinVersionLevel": false,
}

func isText(field string) bool {
	return strings.HasSuffix(field, "ErrorMessage") || field == "StatusDetail"
}

var (
	uuidInText = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// normal turns an answer into plain JSON values.
func (n *naming) normal(v any) any {
	rv := reflect.ValueOf(v)
	// Twice: the first time ids without a name stay open and only orders are found.
	return n.walk(rv, "", "", true)
}

func (n *naming) walk(v reflect.Value, owner, field string, final bool) any {
	if unlisted, ok := n.unlisted(v, owner, field); ok {
		v = unlisted
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return n.walk(v.Elem(), owner, field, final)
	case reflect.Struct:
		return n.walkStruct(v, final)
	case reflect.Slice:
		return n.walkSlice(v, owner, field, final)
	case reflect.Array:
		if v.IsZero() {
			return "<no id>"
		}
		if chosenID(v) {
			return fmt.Sprintf("<id %d>", v.Index(0).Uint())
		}
		return n.name("id", fmt.Sprint(v.Interface()), final)
	case reflect.String:
		return n.text(v.String(), field, final)
	case reflect.Bool:
		return v.Bool()
	case reflect.Float64:
		return v.Float()
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return n.number(v.Int(), owner, field, final)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return n.number(int64(v.Uint()), owner, field, final)
	}
	panic(v.Kind().String())
}

// unlisted keeps of a listing what is the scene's own. A listing without any is nil.
func (n *naming) unlisted(v reflect.Value, owner, field string) (reflect.Value, bool) {
	by, ok := listings[owner+"."+field]
	if !ok || v.Kind() != reflect.Slice {
		return v, false
	}
	out := reflect.Zero(v.Type())
	for i := range v.Len() {
		f := v.Index(i).FieldByName(by)
		if f.Kind() == reflect.Pointer {
			f = f.Elem()
		}
		failed := v.Index(i).FieldByName("ErrorCode")
		if !f.IsValid() || strings.HasPrefix(f.String(), n.scene+".") || failed.IsValid() && failed.Int() != 0 {
			out = reflect.Append(out, v.Index(i))
		}
	}
	return out, true
}

func (n *naming) walkStruct(v reflect.Value, final bool) any {
	t := v.Type()
	out := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Name == "Version" && f.Type.Kind() == reflect.Int16 {
			continue
		}
		if tags, ok := v.Field(i).Interface().(kmsg.Tags); ok {
			tags.Each(func(k uint32, b []byte) { out[fmt.Sprint("tag ", k)] = hex.EncodeToString(b) })
			continue
		}
		out[f.Name] = n.walk(v.Field(i), t.Name(), f.Name, final)
	}
	if out["ErrorCode"] == "NONE" {
		for f := range out {
			if isText(f) {
				out[f] = nil // "NONE", or nothing
			}
		}
	}
	n.mask(v, out)
	return out
}

// chosenID says whether a scene made the id up: brokers draw ids that do not end in zeros.
func chosenID(v reflect.Value) bool {
	for i := 4; i < v.Len(); i++ {
		if v.Index(i).Uint() != 0 {
			return false
		}
	}
	return true
}

// mask hides what an installation decides.
func (n *naming) mask(v reflect.Value, out map[string]any) {
	switch x := v.Interface().(type) {
	case kmsg.DescribeConfigsResponseResourceConfig:
		if x.Documentation != nil {
			out["Documentation"] = "<documentation>"
		}
		if x.Source == kmsg.ConfigSourceStaticBrokerConfig {
			out["Value"] = "<of the file>"
		}
	case kmsg.DescribeConfigsResponseResourceConfigConfigSynonym:
		if x.Source == kmsg.ConfigSourceStaticBrokerConfig {
			out["Value"] = "<of the file>"
		}
	case kmsg.DescribeLogDirsResponseDir:
		out["Dir"] = "<dir>"
	}
}

func (n *naming) walkSlice(v reflect.Value, owner, field string, final bool) any {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return n.bytes(v, field, final)
	}
	if v.IsNil() {
		return nil
	}
	items := make([]reflect.Value, v.Len())
	for i := range items {
		items[i] = v.Index(i)
	}
	elem := v.Type().Elem()
	if elem.Kind() == reflect.Struct && elem.PkgPath() != reflect.TypeFor[naming]().PkgPath() && !ordered[field] && !ordered[owner+"."+field] ||
		unordered[field] && elem.Kind() != reflect.Struct {
		key := make(map[int]string, len(items))
		at := make([]int, len(items))
		for i := range items {
			at[i], key[i] = i, n.sortKey(items[i], owner, field)
		}
		sort.SliceStable(at, func(a, b int) bool { return key[at[a]] < key[at[b]] })
		sorted := make([]reflect.Value, len(items))
		for i, from := range at {
			sorted[i] = items[from]
		}
		items = sorted
	}
	out := make([]any, len(items))
	for i := range items {
		out[i] = n.walk(items[i], owner, field, final)
	}
	return together(out)
}

// together makes one of entries for the same topic that follow each other: brokers split them as they like.
func together(list []any) []any {
	var out []any
	for _, x := range list {
		m, _ := x.(map[string]any)
		ps, ok := m["Partitions"].([]any)
		if len(out) > 0 && ok && m["Topic"] != nil {
			last := out[len(out)-1].(map[string]any)
			if before, ok := last["Partitions"].([]any); ok && last["Topic"] == m["Topic"] && last["TopicID"] == m["TopicID"] && len(ps) > 0 && len(before) > 0 {
				if _, structs := ps[0].(map[string]any); structs {
					all := append(slices.Clone(before), ps...)
					slices.SortStableFunc(all, func(a, b any) int {
						return cmp.Compare(number(a), number(b))
					})
					last["Partitions"] = all
					continue
				}
			}
		}
		out = append(out, x)
	}
	if out == nil {
		return list
	}
	return out
}

func number(partition any) int64 {
	n, _ := partition.(map[string]any)["Partition"].(int64)
	return n
}

// telling are the fields that tell elements of a list apart.
var telling = []string{"Topic", "Name", "Group", "Key", "ApiKey", "Partition", "NodeID", "ReplicaID", "Feature", "ResourceType", "ResourceName", "InstanceID", "MemberID", "TopicID"}

func (n *naming) sortKey(v reflect.Value, owner, field string) string {
	w := n.walk(v, owner, field, false)
	var b strings.Builder
	if m, ok := w.(map[string]any); ok {
		for _, f := range telling {
			if x, ok := m[f]; ok {
				if i, ok := x.(int64); ok {
					x = fmt.Sprintf("%08d", i)
				}
				fmt.Fprint(&b, x, "\x00")
			}
		}
	}
	j, _ := json.Marshal(w)
	b.Write(j)
	return b.String()
}

func (n *naming) bytes(v reflect.Value, field string, final bool) any {
	if v.IsNil() {
		return nil
	}
	b := v.Bytes()
	if field == "RecordBatches" {
		return n.walk(reflect.ValueOf(unpack(b)), "", field, final)
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			if len(b) > 200 {
				return fmt.Sprintf("hex of %d: %x", len(b), b[:40])
			}
			return "hex: " + hex.EncodeToString(b)
		}
	}
	if len(b) > 200 {
		return fmt.Sprintf("%s... of %d", b[:40], len(b))
	}
	return string(b)
}

func (n *naming) text(s, field string, final bool) any {
	switch {
	case isText(field) && s == "":
		return nil // as good as none
	case isText(field):
		return "<text>"
	case field == "Host" && (s == n.host || s == "localhost"):
		return "<host>"
	case field == "ClusterID" && s != "":
		return "<cluster>"
	}
	if len(s) > 300 {
		s = fmt.Sprintf("%s... of %d", s[:40], len(s))
	}
	return uuidInText.ReplaceAllStringFunc(s, func(u string) string { return n.name("uuid", u, final) })
}

func (n *naming) number(i int64, owner, field string, final bool) any {
	if kind := idFields[field]; kind != "" && i > 0 || field == "ProducerID" && i == 0 {
		return n.name(kind, strconv.FormatInt(i, 10), final)
	}
	if (vagueFields[field] || vagueFields[owner+"."+field]) && i > 0 {
		return "<positive>"
	}
	if strings.HasSuffix(field, "ErrorCode") {
		if e := kerr.TypedErrorForCode(int16(i)); e != nil {
			return e.Message
		}
		return "NONE"
	}
	if field == "Port" && owner == "DescribeQuorumResponseNodeListener" {
		return "<controller's port>"
	}
	if field == "Port" && strconv.FormatInt(i, 10) == n.port {
		return "<port>"
	}
	if now := time.Now().UnixMilli(); i > now-3600_000*24 && i < now+3600_000*24*8 {
		return "<now>"
	}
	if i > 1<<52 || i < -1<<52 {
		return strconv.FormatInt(i, 10)
	}
	return i
}

// differ lists where two answers part, as lines.
func differ(path string, want, got any) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		var out []string
		names := map[string]bool{}
		for k := range w {
			names[k] = true
		}
		for k := range g {
			names[k] = true
		}
		for _, k := range slices.Sorted(mapsKeys(names)) {
			out = append(out, differ(path+"."+k, w[k], g[k])...)
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		if len(w) != len(g) {
			return []string{fmt.Sprintf("%s: Kafka %s, Runnel %s", path, brief(w), brief(g))}
		}
		var out []string
		for i := range w {
			out = append(out, differ(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return out
	}
	if reflect.DeepEqual(want, got) {
		return nil
	}
	return []string{fmt.Sprintf("%s: Kafka %s, Runnel %s", path, brief(want), brief(got))}
}

func mapsKeys(m map[string]bool) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func brief(v any) string {
	var w strings.Builder
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	e.Encode(v)
	b := strings.TrimSpace(w.String())
	if len(b) > 260 {
		return b[:260] + "..."
	}
	return b
}
