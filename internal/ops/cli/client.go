package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"runnel/internal/kit/config"
)

// clientOptions are what every client of ours has. It logs nothing: commands report.
func (e *Env) clientOptions() ([]kgo.Opt, error) {
	seeds := config.SplitList(e.bootstrap)
	if len(seeds) == 0 {
		return nil, usage("--bootstrap-server is empty").hint("give HOST:PORT")
	}
	for i, s := range seeds {
		if !strings.Contains(s, ":") {
			seeds[i] = s + ":9092"
			continue
		}
		if _, _, err := config.SplitHostPort(s); err != nil {
			return nil, usage("--bootstrap-server: %v", err).hint("give HOST:PORT, several joined by commas")
		}
	}
	return []kgo.Opt{
		kgo.SeedBrokers(seeds...),
		kgo.ClientID("runnel-cli"),
		kgo.SoftwareNameAndVersion("runnel", shortVersion()),
		kgo.DialTimeout(min(e.timeout, 10*time.Second)),
		kgo.RetryTimeout(e.timeout),
		kgo.MetadataMinAge(50 * time.Millisecond),
	}, nil
}

// connect makes a client and finds out at once whether a broker answers.
func (e *Env) connect(ctx context.Context, more ...kgo.Opt) (*kgo.Client, error) {
	opts, err := e.clientOptions()
	if err != nil {
		return nil, err
	}
	cl, err := kgo.NewClient(append(opts, more...)...)
	if err != nil {
		return nil, usage("%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	if err := cl.Ping(ctx); err != nil {
		cl.Close()
		return nil, err
	}
	return cl, nil
}

// admin is a client for requests; raw sends those kadm has no method for.
type admin struct {
	*kadm.Client
	raw *kgo.Client
}

// admin runs do with an admin client and a deadline.
func (e *Env) admin(ctx context.Context, do func(context.Context, *admin) error) error {
	cl, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	adm := &admin{kadm.NewClient(cl), cl}
	adm.SetTimeoutMillis(int32(min(e.timeout.Milliseconds(), 1<<31-1)))
	return do(ctx, adm)
}

// withMessage puts the cluster's own words before the error's name.
func withMessage(what string, err error, message *string) error {
	return &answered{what, deref(message), err}
}

// answered is an error code in an answer, with what it is about and what the cluster says.
type answered struct {
	what, message string
	err           error
}

func (a *answered) Error() string {
	var k *kerr.Error
	switch {
	case a.message == "" || a.message == a.err.Error():
		return a.what + ": " + words(a.err)
	case errors.As(a.err, &k):
		return fmt.Sprintf("%s: %s (%s)", a.what, strings.TrimSuffix(a.message, "."), k.Message)
	}
	return fmt.Sprintf("%s: %s (%s)", a.what, a.message, a.err)
}

func (a *answered) Unwrap() error { return a.err }

// pairs reads KEY=VALUE arguments.
func pairs(args []string, what string) ([][2]string, error) {
	var out [][2]string
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok || k == "" {
			return nil, usage("%s %q is not KEY=VALUE", what, a)
		}
		out = append(out, [2]string{k, v})
	}
	return out, nil
}

// topicPartitions reads TOPIC or TOPIC:P,P. No partitions means all of them.
func topicPartitions(arg string) (topic string, partitions []int32, err error) {
	topic, list, ok := strings.Cut(arg, ":")
	if topic == "" {
		return "", nil, usage("%q is not TOPIC or TOPIC:PARTITION,...", arg)
	}
	if !ok {
		return topic, nil, nil
	}
	for _, p := range config.SplitList(list) {
		n, err := strconv.ParseInt(p, 10, 32)
		if err != nil || n < 0 {
			return "", nil, usage("%q: %q is not a partition", arg, p)
		}
		partitions = append(partitions, int32(n))
	}
	return topic, partitions, nil
}

// parseTime reads what people and scripts write for an instant: RFC 3339, a date with or
// without a clock time (UTC), or milliseconds since 1970.
func parseTime(s string) (time.Time, error) {
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, usage("%q is not a time", s).hint("write 2006-01-02T15:04:05Z, 2006-01-02, or milliseconds since 1970")
}

// parseSpan reads Go's 1h30m, and Kafka's ISO form P1DT2H, as a length of time.
func parseSpan(s string) (time.Duration, error) {
	bad := usage("%q is not a length of time", s).hint("write 1h30m, 7d or P7D")
	text := strings.ToUpper(s)
	iso := strings.HasPrefix(text, "P")
	if !iso && strings.HasSuffix(text, "D") {
		text, iso = "P"+text, true
	}
	if !iso {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return 0, bad
		}
		return d, nil
	}
	days, clock, _ := strings.Cut(text[1:], "T")
	var total time.Duration
	if days != "" {
		n, err := strconv.Atoi(strings.TrimSuffix(days, "D"))
		if err != nil || n < 0 || !strings.HasSuffix(days, "D") {
			return 0, bad
		}
		total = time.Duration(n) * 24 * time.Hour
	}
	if clock != "" {
		d, err := time.ParseDuration(strings.ToLower(clock))
		if err != nil || d < 0 {
			return 0, bad
		}
		total += d
	}
	if days == "" && clock == "" {
		return 0, bad
	}
	return total, nil
}
