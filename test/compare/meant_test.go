package compare

import "regexp"

// meant are the differences from Apache Kafka that Runnel intends, as patterns of the lines that partings reports, each
// with its reason. Error texts are never compared: ours name the value, the rule and the key.
var meant = []struct{ line, reason string }{
	{`ErrorMessage: Kafka null, Runnel "<text>"$`, "we say what is wrong where Kafka says nothing"},
	{`ErrorRecords: Kafka null, Runnel \[`, "we name the record at fault where Kafka names none"},
	{`^(alter-configs|incremental-alter-configs).*: one resource twice: .*Kafka silent`, "Kafka never answers and the connection is stuck; we refuse"},
	{`^bad-batches: codec [57]: .*ErrorCode: Kafka "UNKNOWN_SERVER_ERROR", Runnel "UNSUPPORTED_COMPRESSION_TYPE"`, "the error that it is (measured: odd)"},
	{`^codec-[a-z0-9]*: undecodable: .*ErrorCode: Kafka "UNKNOWN_SERVER_ERROR", Runnel "INVALID_RECORD"`, "the error that it is (measured: odd)"},
	{`^describe-log-dirs.*(Total|Usable)Bytes: Kafka "<positive>", Runnel -1`, "an embedded node in memory has no disk to measure"},
	{`^describe-configs.*: a logger: `, "there are no loggers of single classes whose levels could be shown"},
	{`^(fetch|session|session-errors).*AbortedTransactions: Kafka \[\], Runnel null`, "for a partition without data none and an empty list mean the same to clients"},
	{`^describe-configs.*: the broker( with synonyms)?: .*Configs\[7\]\.(Value|ConfigSynonyms): Kafka null`, "log.retention.ms that is not set follows log.retention.hours: we show what is in force"},
	{`^describe-configs.*: with synonyms: .*Configs\[[24]\]\.ConfigSynonyms: `, "our list names the keys of the broker that a topic's key falls back to, whether set or not"},
	{`^describe-configs.*: the broker with synonyms: .*ConfigSynonyms: Kafka \[\{"Name":"(node.id|log.dirs)"`, "our list names older spellings of a key as well"},
	{`^config-values: values that cleanup.policy takes: `, "a policy named twice is a slip of the pen: refused, as other lists do"},
	{`^config-values: values that (leader|follower).replication.throttled.replicas takes: `, "none is documented as a value"},
	{`^update-features.*: kraft.version 1 kind 1: `, "a quorum of fixed voters is not upgraded here yet: refused, and said so"},
	{`^timestamps: already marked so: .*ErrorRecords: `, "the whole batch is at fault, not a record in it"},
	{`^metadata-v1[23]: by no id: .*Topic: Kafka "", Runnel null`, "there is no name to give back"},
}

var meantPatterns = func() (out []*regexp.Regexp) {
	for _, m := range meant {
		out = append(out, regexp.MustCompile(m.line))
	}
	return out
}()

func isMeant(line string) bool {
	for _, p := range meantPatterns {
		if p.MatchString(line) {
			return true
		}
	}
	return false
}
