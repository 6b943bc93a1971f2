package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"runnel/internal/kit/ids"
	"runnel/internal/meta/feature"
)

func newClusterCommand(env *Env) *cobra.Command {
	return parent("cluster", "Show brokers, feature levels, log directories and the quorum",
		newClusterDescribe(env), newClusterFeatures(env), newClusterLogDirs(env), newClusterQuorum(env))
}

type brokerRow struct {
	ID         int32  `json:"id"`
	Host       string `json:"host"`
	Port       int32  `json:"port"`
	Rack       string `json:"rack,omitempty"`
	Controller bool   `json:"controller"`
	Fenced     bool   `json:"fenced"`
}

type clusterDescription struct {
	ID         string      `json:"clusterId"`
	Controller int32       `json:"controller"`
	Brokers    []brokerRow `json:"brokers"`
	Topics     int         `json:"topics"`
	Partitions int         `json:"partitions"`
}

func newClusterDescribe(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "describe",
		Short: "Show the cluster's id and its brokers",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				d, err := describeCluster(ctx, adm)
				if err != nil {
					return err
				}
				return env.show(d, func() error {
					fmt.Fprintf(env.Stdout, "cluster %s  brokers %d  topics %d  partitions %d\n", d.ID, len(d.Brokers), d.Topics, d.Partitions)
					t := newTable("BROKER", "HOST", "PORT", "RACK", "NOTE")
					for _, b := range d.Brokers {
						t.add(b.ID, b.Host, b.Port, b.Rack, b.note())
					}
					return t.write(env.Stdout)
				})
			})
		},
	}
}

func (b *brokerRow) note() string {
	var notes []string
	if b.Controller {
		notes = append(notes, "takes admin requests")
	}
	if b.Fenced {
		notes = append(notes, "fenced")
	}
	return strings.Join(notes, ", ")
}

func describeCluster(ctx context.Context, adm *admin) (*clusterDescription, error) {
	meta, err := adm.Metadata(ctx)
	if err != nil {
		return nil, err
	}
	d := &clusterDescription{ID: meta.Cluster, Controller: meta.Controller, Brokers: []brokerRow{}}
	for _, t := range meta.Topics {
		d.Topics, d.Partitions = d.Topics+1, d.Partitions+len(t.Partitions)
	}
	rq := kmsg.NewPtrDescribeClusterRequest()
	rq.EndpointType, rq.IncludeFencedBrokers = 1, true
	if resp, err := rq.RequestWith(ctx, adm.raw); err == nil && resp.ErrorCode == 0 {
		for _, b := range resp.Brokers {
			d.Brokers = append(d.Brokers, brokerRow{b.NodeID, b.Host, b.Port, deref(b.Rack), b.NodeID == meta.Controller, b.IsFenced})
		}
	} else { // clusters before 2.8
		for _, b := range meta.Brokers {
			d.Brokers = append(d.Brokers, brokerRow{b.NodeID, b.Host, b.Port, deref(b.Rack), b.NodeID == meta.Controller, false})
		}
	}
	slices.SortFunc(d.Brokers, func(a, b brokerRow) int { return int(a.ID - b.ID) })
	return d, nil
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

type featureRow struct {
	Name      string `json:"name"`
	Min       int16  `json:"supportedMin"`
	Max       int16  `json:"supportedMax"`
	Finalized int16  `json:"finalized"`
	Release   string `json:"release,omitempty"`
}

func newClusterFeatures(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "features",
		Short: "Show the feature levels the cluster runs at and could run at",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := env.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), env.timeout)
			defer cancel()
			rq := kmsg.NewPtrApiVersionsRequest()
			rq.ClientSoftwareName, rq.ClientSoftwareVersion = "runnel", shortVersion()
			resp, err := rq.RequestWith(ctx, cl)
			if err != nil {
				return err
			}
			if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
				return err
			}
			rows := featureRows(resp)
			return env.show(rows, func() error {
				t := newTable("FEATURE", "FINALIZED", "SUPPORTED", "RELEASE")
				for _, r := range rows {
					t.add(r.Name, r.Finalized, fmt.Sprintf("%d-%d", r.Min, r.Max), r.Release)
				}
				return t.write(env.Stdout)
			})
		},
	}
}

func featureRows(resp *kmsg.ApiVersionsResponse) []featureRow {
	rows := []featureRow{}
	for _, f := range resp.SupportedFeatures {
		rows = append(rows, featureRow{Name: f.Name, Min: f.MinVersion, Max: f.MaxVersion})
	}
	for _, f := range resp.FinalizedFeatures {
		i := slices.IndexFunc(rows, func(r featureRow) bool { return r.Name == f.Name })
		if i < 0 {
			rows = append(rows, featureRow{Name: f.Name})
			i = len(rows) - 1
		}
		rows[i].Finalized = f.MaxVersionLevel
		if f.Name == feature.MetadataVersion {
			rows[i].Release = feature.MetadataName(f.MaxVersionLevel)
		}
	}
	slices.SortFunc(rows, func(a, b featureRow) int { return strings.Compare(a.Name, b.Name) })
	return rows
}

type logDirRow struct {
	Broker     int32           `json:"broker"`
	Dir        string          `json:"dir"`
	Error      string          `json:"error,omitempty"`
	Size       int64           `json:"size"`
	Total      int64           `json:"totalBytes"`
	Usable     int64           `json:"usableBytes"`
	Cordoned   bool            `json:"cordoned"`
	Partitions []logDirReplica `json:"partitions"`
}

type logDirReplica struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Size      int64  `json:"size"`
	Lag       int64  `json:"offsetLag"`
	Future    bool   `json:"future"`
}

func newClusterLogDirs(env *Env) *cobra.Command {
	var partitions bool
	var topics []string
	cmd := &cobra.Command{
		Use:   "log-dirs",
		Short: "Show the brokers' log directories, their space and what they hold",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return env.admin(cmd.Context(), func(ctx context.Context, adm *admin) error {
				all, err := adm.DescribeAllLogDirs(ctx, nil)
				if err != nil {
					return err
				}
				rows := logDirRows(all, topics)
				return env.show(rows, func() error { return printLogDirs(env, rows, partitions || len(topics) > 0) })
			})
		},
	}
	cmd.Flags().BoolVar(&partitions, "partitions", false, "also list the replicas in each directory")
	cmd.Flags().StringSliceVarP(&topics, "topic", "t", nil, "only replicas of these topics")
	return cmd
}

func logDirRows(all kadm.DescribedAllLogDirs, topics []string) []logDirRow {
	rows := []logDirRow{}
	for _, d := range all.Sorted() {
		r := logDirRow{Broker: d.Broker, Dir: d.Dir, Total: d.TotalBytes, Usable: d.UsableBytes, Cordoned: d.IsCordoned, Partitions: []logDirReplica{}}
		if d.Err != nil {
			r.Error = d.Err.Error()
		}
		for _, p := range d.Topics.Sorted() {
			r.Size += p.Size
			if len(topics) == 0 || slices.Contains(topics, p.Topic) {
				r.Partitions = append(r.Partitions, logDirReplica{p.Topic, p.Partition, p.Size, p.OffsetLag, p.IsFuture})
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func printLogDirs(env *Env, rows []logDirRow, partitions bool) error {
	t := newTable("BROKER", "DIRECTORY", "REPLICAS", "SIZE", "FREE", "TOTAL", "NOTE")
	for _, r := range rows {
		note := r.Error
		if r.Cordoned {
			note = strings.TrimSpace("cordoned " + note)
		}
		t.add(r.Broker, r.Dir, len(r.Partitions), bytesText(r.Size), bytesText(r.Usable), bytesText(r.Total), note)
	}
	if err := t.write(env.Stdout); err != nil || !partitions {
		return err
	}
	fmt.Fprintln(env.Stdout)
	t = newTable("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "SIZE", "LAG", "NOTE")
	for _, r := range rows {
		for _, p := range r.Partitions {
			note := ""
			if p.Future {
				note = "moving in"
			}
			t.add(r.Broker, r.Dir, p.Topic, p.Partition, bytesText(p.Size), p.Lag, note)
		}
	}
	return t.write(env.Stdout)
}

type quorumReplica struct {
	ID        int32  `json:"id"`
	Directory string `json:"directoryId,omitempty"`
	Role      string `json:"role"`
	End       int64  `json:"logEndOffset"`
	Lag       int64  `json:"lag"`
	Fetched   int64  `json:"lastFetchTimestamp"`
	CaughtUp  int64  `json:"lastCaughtUpTimestamp"`
	Endpoint  string `json:"endpoint,omitempty"`
}

type quorumDescription struct {
	Leader        int32           `json:"leader"`
	Epoch         int32           `json:"epoch"`
	HighWatermark int64           `json:"highWatermark"`
	Replicas      []quorumReplica `json:"replicas"`
}

func newClusterQuorum(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "quorum",
		Short: "Show the controllers' quorum: leader, voters, observers and their lag",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cl, err := env.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer cl.Close()
			ctx, cancel := context.WithTimeout(cmd.Context(), env.timeout)
			defer cancel()
			rq := kmsg.NewPtrDescribeQuorumRequest()
			t := kmsg.NewDescribeQuorumRequestTopic()
			t.Topic = ids.MetadataTopic
			t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
			rq.Topics = append(rq.Topics, t)
			resp, err := rq.RequestWith(ctx, cl)
			if err != nil {
				return err
			}
			d, err := describedQuorum(resp)
			if err != nil {
				return err
			}
			return env.show(d, func() error { return d.print(env) })
		},
	}
}

func describedQuorum(resp *kmsg.DescribeQuorumResponse) (*quorumDescription, error) {
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, withMessage("quorum", err, resp.ErrorMessage)
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, failed("the cluster did not describe its quorum")
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, withMessage("quorum", err, p.ErrorMessage)
	}
	endpoints := map[int32]string{}
	for _, n := range resp.Nodes {
		var at []string
		for _, l := range n.Listeners {
			at = append(at, l.Name+"://"+l.Host+":"+strconv.Itoa(int(l.Port)))
		}
		endpoints[n.NodeID] = strings.Join(at, ",")
	}
	d := &quorumDescription{Leader: p.LeaderID, Epoch: p.LeaderEpoch, HighWatermark: p.HighWatermark, Replicas: []quorumReplica{}}
	leaderEnd := int64(-1)
	for _, v := range p.CurrentVoters {
		if v.ReplicaID == p.LeaderID {
			leaderEnd = v.LogEndOffset
		}
	}
	add := func(role string, states []kmsg.DescribeQuorumResponseTopicPartitionReplicaState) {
		for _, s := range states {
			r := quorumReplica{ID: s.ReplicaID, Role: role, End: s.LogEndOffset, Lag: -1, Fetched: s.LastFetchTimestamp, CaughtUp: s.LastCaughtUpTimestamp, Endpoint: endpoints[s.ReplicaID]}
			if role == "voter" && s.ReplicaID == p.LeaderID {
				r.Role = "leader"
			}
			if leaderEnd >= 0 && s.LogEndOffset >= 0 {
				r.Lag = leaderEnd - s.LogEndOffset
			}
			if u := ids.UUID(s.ReplicaDirectoryID); !u.IsZero() {
				r.Directory = u.String()
			}
			d.Replicas = append(d.Replicas, r)
		}
	}
	add("voter", p.CurrentVoters)
	add("observer", p.Observers)
	return d, nil
}

func (d *quorumDescription) print(env *Env) error {
	fmt.Fprintf(env.Stdout, "leader %d  epoch %d  high watermark %d\n", d.Leader, d.Epoch, d.HighWatermark)
	t := newTable("NODE", "ROLE", "LOG END", "LAG", "DIRECTORY", "ENDPOINT")
	for _, r := range d.Replicas {
		t.add(r.ID, r.Role, orDash(r.End), orDash(r.Lag), r.Directory, r.Endpoint)
	}
	return t.write(env.Stdout)
}
