package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Exit codes; the package documentation says what they mean.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitUnreachable = 4
	exitRefused     = 5
	exitInterrupted = 130
)

// failure is an error with an exit code and the next step.
type failure struct {
	code int
	text string
	next string
}

func (f *failure) Error() string { return f.text }

func (f *failure) hint(format string, args ...any) *failure {
	f.next = fmt.Sprintf(format, args...)
	return f
}

func failed(format string, args ...any) *failure {
	return &failure{code: exitFailed, text: fmt.Sprintf(format, args...)}
}

func usage(format string, args ...any) *failure {
	return &failure{code: exitUsage, text: fmt.Sprintf(format, args...)}
}

func notFound(format string, args ...any) *failure {
	return &failure{code: exitNotFound, text: fmt.Sprintf(format, args...)}
}

func refused(format string, args ...any) *failure {
	return &failure{code: exitRefused, text: fmt.Sprintf(format, args...)}
}

var errInterrupted = &failure{code: exitInterrupted, text: "interrupted"}

func noTopic(name string) *failure {
	return notFound("topic %q does not exist", name).hint("see `runnel topic list`, or make it with `runnel topic create %s`", name)
}

func noGroup(name string) *failure {
	return notFound("group %q does not exist", name).hint("see `runnel group list`")
}

// explain turns any error into one line, an exit code and a next step.
func (e *Env) explain(ctx context.Context, err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed)) {
		return errInterrupted
	}
	var k *kerr.Error
	if errors.As(err, &k) {
		return explainKafka(err, k)
	}
	if f := e.explainNetwork(err); f != nil {
		return f
	}
	switch {
	case errors.Is(err, syscall.EPIPE):
		return &failure{code: exitFailed} // the reader of our output has gone: nobody wants a message
	case errors.Is(err, fs.ErrNotExist):
		return notFound("%s", oneLine(err)).hint("check the path")
	case errors.Is(err, fs.ErrPermission):
		return failed("%s", oneLine(err)).hint("check the owner and mode of the path")
	}
	return failed("%s", oneLine(err))
}

func explainKafka(err error, k *kerr.Error) *failure {
	code, next := exitFailed, ""
	switch k {
	case kerr.UnknownTopicOrPartition, kerr.UnknownTopicID:
		code, next = exitNotFound, "see `runnel topic list`"
	case kerr.GroupIDNotFound:
		code, next = exitNotFound, "see `runnel group list`"
	case kerr.ResourceNotFound, kerr.LogDirNotFound, kerr.BrokerIDNotRegistered:
		code = exitNotFound
	case kerr.NonEmptyGroup, kerr.GroupSubscribedToTopic, kerr.UnknownMemberID:
		code, next = exitRefused, "stop the group's members first; see `runnel group describe`"
	case kerr.TopicAlreadyExists:
		next = "see `runnel topic describe`, or use --if-not-exists"
	case kerr.InvalidReplicationFactor:
		next = "see the brokers in `runnel cluster describe`; fewer brokers allow fewer replicas"
	case kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.ClusterAuthorizationFailed:
		next = "use a principal that is allowed to do this"
	case kerr.UnsupportedVersion:
		next = "this cluster does not serve the request; see `runnel cluster features`"
	case kerr.MessageTooLarge, kerr.RecordListTooLarge:
		next = "raise max.message.bytes of the topic, or send smaller records"
	case kerr.NotEnoughReplicas, kerr.NotEnoughReplicasAfterAppend:
		next = "see `runnel topic describe --under-min-isr-partitions`"
	case kerr.PolicyViolation:
		next = "only topics with cleanup.policy=delete allow it; see `runnel config describe topic`"
	case kerr.RequestTimedOut:
		next = "try again, or with a longer --timeout"
	case kerr.CoordinatorNotAvailable, kerr.LeaderNotAvailable, kerr.NotController:
		next = "try again in a moment; see `runnel cluster describe`"
	}
	text := oneLine(err)
	if text == k.Error() {
		text = words(k)
	}
	return &failure{code: code, text: text, next: next}
}

// explainNetwork recognises a cluster that cannot be reached, or that answers nonsense.
func (e *Env) explainNetwork(err error) *failure {
	var (
		op    *net.OpError
		dns   *net.DNSError
		first *kgo.ErrFirstReadEOF
	)
	unreachable := &failure{code: exitUnreachable, next: "check --bootstrap-server, and that the server runs (`runnel server` starts one)"}
	switch {
	case errors.As(err, &dns):
		unreachable.text = fmt.Sprintf("cannot find host %q", dns.Name)
	case errors.As(err, &op) && op.Op == "dial":
		unreachable.text = fmt.Sprintf("no broker answers at %s: %s", op.Addr, reason(op.Err))
	case errors.As(err, &first), errors.Is(err, io.ErrUnexpectedEOF):
		unreachable.text = fmt.Sprintf("the server at %s closed the connection at once", e.bootstrap)
		unreachable.next = "it may want TLS or SASL, or not be a Kafka listener"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), kgo.IsRetryableBrokerErr(err):
		unreachable.text = fmt.Sprintf("no answer from the cluster at %s within %s", e.bootstrap, e.timeout)
		unreachable.next = "check --bootstrap-server and the server's log, or try a longer --timeout"
	default:
		return nil
	}
	return unreachable
}

// words is an error code as a person reads it, its name last.
func words(err error) string {
	var k *kerr.Error
	if !errors.As(err, &k) {
		return oneLine(err)
	}
	d := strings.TrimSuffix(k.Description, ".")
	return strings.ToLower(d[:1]) + d[1:] + " (" + k.Message + ")"
}

// exclusive refuses more than one of the flags.
func exclusive(set func(string) bool, names ...string) error {
	var given []string
	for _, n := range names {
		if set(n) {
			given = append(given, "--"+n)
		}
	}
	if len(given) > 1 {
		return usage("%s exclude each other", strings.Join(given, " and "))
	}
	return nil
}

func reason(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return oneLine(err)
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}
