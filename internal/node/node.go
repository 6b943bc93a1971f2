package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"time"

	"runnel/internal/coord/producerid"
	"runnel/internal/kit/config"
	"runnel/internal/kit/ids"
	"runnel/internal/meta/controller"
	"runnel/internal/meta/feature"
	"runnel/internal/meta/image"
	"runnel/internal/meta/lifecycle"
	"runnel/internal/meta/metafeed"
	"runnel/internal/meta/quorum"
	"runnel/internal/peer"
	"runnel/internal/repl/replica"
	"runnel/internal/serve/api"
	"runnel/internal/serve/forward"
	"runnel/internal/serve/handle/admin"
	"runnel/internal/serve/handle/cluster"
	"runnel/internal/serve/handle/data"
	"runnel/internal/serve/handle/meta"
	"runnel/internal/serve/server"
	"runnel/internal/store/commitlog"
	"runnel/internal/store/logstore"
)

// Node is a running server.
type Node struct {
	opts   Options
	conf   *config.Server
	random *source
	began  time.Time
	report logstore.Report

	bound       []bound
	store       *logstore.Store
	metadataLog *commitlog.Log
	quorum      *quorum.Quorum
	feed        *metafeed.Feed
	controller  *controller.Controller
	replicas    *replica.Table
	life        *lifecycle.Lifecycle
	alive       atomic.Pointer[lifecycle.Lifecycle] // life, for the feed's goroutine
	groups      *groups
	records     *data.Data
	peers       *peer.Client
	forwarder   *forward.Forwarder
	brokerAPIs  *api.Registry
	servers     []*server.Server
	leads       leadership
	deciding    atomic.Bool // this node's controller is the active one and at work
	current     atomic.Pointer[config.Layers]
	applied     chan struct{} // closed when the first whole image was applied

	ctx      context.Context // ends when the node stops
	cancel   context.CancelFunc
	started  chan struct{} // closed when Start has succeeded
	stopping chan struct{} // closed when the node cannot go on
	tasks    sync.WaitGroup
	done     chan struct{}
	end      struct {
		sync.Once
		err error
	}
	failure struct {
		sync.Once
		err error
	}
}

// Start brings a server up and returns when it serves clients. On an error nothing of it
// is left running.
func Start(ctx context.Context, o Options) (*Node, error) {
	o = o.withDefaults()
	n := &Node{opts: o, conf: o.Config, random: newSource(*o.Seed), began: time.Now(), started: make(chan struct{}), stopping: make(chan struct{}), done: make(chan struct{}), applied: make(chan struct{})}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.current.Store(o.Config.Layers)
	if err := n.start(ctx); err != nil {
		n.Abandon()
		if f := n.failure.err; f != nil {
			return nil, f
		}
		return nil, err
	}
	close(n.started)
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if err := n.bind(); err != nil {
		return err
	}
	if err := n.openStore(ctx); err != nil {
		return err
	}
	if err := n.openMetadata(); err != nil {
		return err
	}
	n.peers = peer.New(n.opts.Dial, fmt.Sprintf("runnel-%d", n.conf.NodeID))
	if n.conf.Broker {
		n.buildBroker()
	}
	n.newServers(n.brokerAPIs, n.controllerRegistry())
	n.serve(true)
	n.quorum.Start()
	if n.conf.Controller {
		n.tasks.Go(func() { n.registerController(n.ctx, uuid(n.random.next)) })
	}
	if n.conf.Broker {
		if err := n.joinCluster(ctx); err != nil {
			return err
		}
		for _, tp := range n.store.Futures() { // moves that the last stop interrupted
			n.move(tp)
		}
	}
	n.tasks.Go(func() { n.store.Run(n.ctx) })
	return n.failed()
}

// failed is why the node cannot go on, nil while it can.
func (n *Node) failed() error {
	select {
	case <-n.stopping:
		return n.failure.err
	default:
		return nil
	}
}

// openStore locks and opens the log directories.
func (n *Node) openStore(ctx context.Context) error {
	clusterID, err := n.identify()
	if err != nil {
		return err
	}
	l := n.layers()
	ms := func(key string) time.Duration { return msOf(l, key) }
	n.store, n.report, err = logstore.Open(ctx, logstore.Options{
		FS: n.opts.FS, Dirs: n.conf.LogDirs, MetadataDir: n.conf.MetadataDir, ClusterID: clusterID, NodeID: n.conf.NodeID,
		Config: func(topic string) *config.Log {
			if n.feed == nil {
				return n.layers().Topic(nil)
			}
			return n.layers().Topic(n.feed.Image().Config(image.TopicConfig, topic))
		},
		Now: n.opts.Now, Random: n.random.stream(),
		RetentionCheck: ms("log.retention.check.interval.ms"), InitialDelay: ms("log.initial.task.delay.ms"),
		FlushCheckpoint: ms("log.flush.offset.checkpoint.interval.ms"), StartCheckpoint: ms("log.flush.start.offset.checkpoint.interval.ms"),
		HWCheckpoint: ms("replica.high.watermark.checkpoint.interval.ms"), CleanerBackoff: ms("log.cleaner.backoff.ms"),
		CleanerMapBytes: l.Int("log.cleaner.dedupe.buffer.size"), CleanerBytesPerSec: l.Float("log.cleaner.io.max.bytes.per.second"),
		CleanerDisabled: !l.Bool("log.cleaner.enable"), ProducerExpiryMs: l.Int("producer.id.expiration.ms"),
		ProducerExpiryCheck: ms("producer.id.expiration.check.interval.ms"), FileDeleteDelay: ms("log.segment.delete.delay.ms"),
		RecoveryThreads: int(l.Int("num.recovery.threads.per.data.dir")), MinFreeBytes: l.Int("runnel.log.dir.min.free.bytes"),
		Events: n.storeEvents(),
	})
	return err
}

// recoveryProgress logs how far recovery is: now and then, and when a directory is done,
// since a directory may hold thousands of logs.
func recoveryProgress(log *slog.Logger) func(dir string, done, total int) {
	var mu sync.Mutex
	said := time.Now()
	return func(dir string, done, total int) {
		mu.Lock()
		quiet := time.Since(said) < time.Second && done < total
		if !quiet {
			said = time.Now()
		}
		mu.Unlock()
		if !quiet {
			log.Info("recovering logs after an unclean stop", "dir", dir, "done", done, "total", total)
		}
	}
}

func (n *Node) storeEvents() logstore.Events {
	log := n.opts.Log
	return logstore.Events{
		Recovering: recoveryProgress(log),
		DirFailed: func(dir string, err error) {
			log.Error("log directory is offline", "dir", dir, "err", err)
			n.background(func() { n.dirFailed(dir, err) })
		},
		LogFailed: func(tp ids.TopicPartition, err error) {
			log.Error("partition is offline", "partition", tp.String(), "err", err)
			n.background(func() { n.lost(err) })
		},
		Full: func(dir string, full bool) {
			if full {
				log.Warn("log directory is full: appends are refused until there is room again", "dir", dir, "key", "runnel.log.dir.min.free.bytes")
			} else {
				log.Info("log directory has room again: appends are taken", "dir", dir)
			}
		},
		Deleted: func(tp ids.TopicPartition, segments int) {
			log.Info("retention deleted segments", "partition", tp.String(), "segments", segments)
		},
		Cleaned: func(tp ids.TopicPartition, before, after int64) {
			log.Info("log compacted", "partition", tp.String(), "bytes.before", before, "bytes.after", after)
		},
		CleanError: func(tp ids.TopicPartition, err error) {
			log.Error("log cannot be compacted", "partition", tp.String(), "err", err)
		},
		Note: func(dir, text string) { log.Warn(text, "dir", dir) },
	}
}

// background runs what must not run on the caller's goroutine, which may hold a
// partition's lock, once the node is whole.
func (n *Node) background(f func()) {
	if n.ctx.Err() != nil {
		return
	}
	n.tasks.Go(func() {
		select {
		case <-n.started:
			f()
		case <-n.ctx.Done():
		}
	})
}

func (n *Node) lost(err error) {
	if n.replicas != nil {
		n.replicas.Lost(err)
	}
}

// dirFailed takes a directory's replicas offline and tells the controller, or ends the
// node if it cannot live without the directory.
func (n *Node) dirFailed(dir string, err error) {
	n.lost(err)
	online := false
	for _, d := range n.store.Dirs() {
		online = online || d.Err == nil
		if d.Path != dir {
			continue
		}
		if d.Metadata {
			n.fatal(fmt.Errorf("the metadata directory failed: %w", err))
			return
		}
		if n.life != nil {
			n.life.DirFailed(d.ID)
		}
	}
	if !online {
		n.fatal(fmt.Errorf("no log directory is left: %w", err))
	}
}

// openMetadata opens the metadata log with its quorum, feed and, where this node has the
// role, controller.
func (n *Node) openMetadata() error {
	l := n.layers()
	conf := config.DefaultLog()
	conf.SegmentBytes, conf.SegmentMs = int32(l.Int("metadata.log.segment.bytes")), l.Int("metadata.log.segment.ms")
	conf.RetentionMs, conf.RetentionBytes, conf.MaxMessageBytes = -1, -1, 16<<20
	var err error
	if n.metadataLog, _, err = n.store.OpenMetadataLog(conf); err != nil {
		return err
	}
	ms := func(key string) time.Duration { return msOf(l, key) }
	n.feed = metafeed.New(metafeed.Options{
		Subscribers: []metafeed.Subscriber{n.applyConfigs, n.applyRoles, n.applyRegistration},
		NotLeading:  func(int32, int32) { n.leads.fire() },
		Now:         n.opts.Now, Logger: n.opts.Log, Fatal: n.fatal,
		SnapshotBytes: l.Int("metadata.log.max.record.bytes.between.snapshots"), SnapshotEvery: ms("metadata.log.max.snapshot.interval.ms"),
	})
	dir := ids.Zero
	for _, d := range n.store.Dirs() {
		if d.Metadata {
			dir = d.ID
		}
	}
	bootstrap := []quorum.Endpoint{}
	for _, hp := range n.conf.Bootstrap {
		if host, port, err := config.SplitHostPort(hp); err == nil {
			bootstrap = append(bootstrap, quorum.Endpoint{Name: n.conf.ControllerListeners[0], Host: host, Port: uint16(port)})
		}
	}
	n.quorum, err = quorum.Open(quorum.Options{
		FS: n.opts.FS, Dir: path.Join(n.store.MetadataDir(), ids.MetadataTopic+"-0"), ClusterID: n.store.ClusterID(), NodeID: n.conf.NodeID,
		DirectoryID: dir, Controller: n.conf.Controller, Voters: n.voters(), Bootstrap: bootstrap, Endpoints: n.controllerEndpoints(),
		Listener: n.conf.ControllerListeners[0], Log: n.metadataLog, Now: n.opts.Now, Random: n.random.stream(), Logger: n.opts.Log,
		Timing: quorum.Timing{
			Election: ms("controller.quorum.election.timeout.ms"), Fetch: ms("controller.quorum.fetch.timeout.ms"),
			Request: ms("controller.quorum.request.timeout.ms"), Retry: ms("controller.quorum.retry.backoff.ms"), BackoffMax: ms("controller.quorum.election.backoff.max.ms"),
		},
		FetchMaxBytes: int32(l.Int("controller.quorum.fetch.max.bytes")), SnapshotMaxBytes: int32(l.Int("controller.quorum.fetch.snapshot.max.bytes")),
		RetentionBytes: l.Int("metadata.max.retention.bytes"), RetentionMs: l.Int("metadata.max.retention.ms"),
		Send: n.sendRaft, State: n.feed, Fatal: n.fatal,
	})
	if err != nil {
		return err
	}
	n.feed.SetSnapshotWriter(n.quorum.WriteSnapshot)
	if n.conf.Controller {
		o := n.controllerOptions()
		if o.Bootstrap, err = n.readBootstrap(); err != nil {
			return err
		}
		n.controller = controller.New(o)
		n.feed.SetController(n.controller)
	}
	return nil
}

// buildBroker makes the broker's side, which serves once joinCluster says so.
func (n *Node) buildBroker() {
	l := n.layers()
	n.replicas = replica.New(replica.Options{
		NodeID: n.conf.NodeID, Store: n.store, Layers: n.layers, MaxDecompressed: int(l.Int("socket.request.max.bytes")), Log: n.opts.Log,
	})
	n.forwarder = forward.New(forward.Options{
		Peers: n.peers, Active: n.active, CatchUp: n.catchUp, Timeout: time.Duration(l.Int("request.timeout.ms")) * time.Millisecond,
	})
	n.groups = newGroups(n)
	n.brokerAPIs = &api.Registry{}
	creator := &autoCreator{n: n}
	creator.mu.busy = map[string]bool{}
	n.meta(n.brokerAPIs, false, creator).RegisterBroker(n.brokerAPIs)
	n.records = data.New(data.Options{
		NodeID: n.conf.NodeID, Image: n.feed.Image, Replicas: n.replicas, Now: n.opts.Now, Random: n.random.stream(),
		ProducerIDs: producerid.New(n.conf.NodeID, func() int64 { return n.life.Epoch() }, toController{n, n.peers}),
		FetchMax:    int(l.Int("fetch.max.bytes")), SessionSlots: int(l.Int("max.incremental.fetch.session.cache.slots")),
	})
	n.records.Register(n.brokerAPIs)
	admin.New(admin.Options{NodeID: n.conf.NodeID, Forwarder: n.forwarder, Image: n.feed.Image, Layers: n.layers, Dirs: logDirs{n}}).Register(n.brokerAPIs)
	n.groups.register(n.brokerAPIs)
}

func (n *Node) controllerRegistry() *api.Registry {
	if !n.conf.Controller {
		return nil
	}
	r := &api.Registry{}
	n.meta(r, true, nil).RegisterController(r)
	cluster.New(n.controller, n.quorum).Register(r)
	return r
}

func (n *Node) meta(r *api.Registry, isController bool, creator meta.AutoCreator) *meta.Meta {
	l := n.layers()
	return meta.New(meta.Options{
		NodeID: n.conf.NodeID, ClusterID: n.store.ClusterID(), Controller: isController, Image: n.feed.Image, Layers: n.layers, Registry: r,
		Features: feature.Supported, KRaftVersion: func() int16 { return n.quorum.View().KRaftVersion }, AutoCreate: creator,
		AutoCreateOn: l.Bool("auto.create.topics.enable"), Dialled: l.Bool("runnel.advertise.dialled.address"),
		PageLimit:     int(l.Int("max.request.partition.size.limit")),
		ActiveControl: func() int32 { id, _ := n.quorum.Leader(); return id },
	})
}

// joinCluster registers the broker and returns once it is unfenced and serves.
func (n *Node) joinCluster(ctx context.Context) error {
	l := n.layers()
	ms := func(key string) time.Duration { return msOf(l, key) }
	var dirs []ids.UUID
	for _, d := range n.store.Dirs() {
		if d.Err == nil {
			dirs = append(dirs, d.ID)
		}
	}
	var rack *string
	if r := l.String("broker.rack"); r != "" {
		rack = &r
	}
	life := lifecycle.Start(lifecycle.Options{
		BrokerID: n.conf.NodeID, ClusterID: n.store.ClusterID(), Incarnation: uuid(n.random.next), Endpoints: n.advertised(),
		Features: feature.Supported(), Rack: rack, LogDirs: dirs, PreviousEpoch: n.store.PreviousBrokerEpoch(),
		HeartbeatInterval: ms("broker.heartbeat.interval.ms"), RequestTimeout: ms("broker.session.timeout.ms") / 2,
		InitialTimeout: ms("initial.broker.registration.timeout.ms"), DirFailureTimeout: ms("log.dir.failure.timeout.ms"),
		Controller: toController{n, n.peers}, Now: n.opts.Now,
		Events: lifecycle.Events{Failed: n.requestFailed},
	})
	n.alive.Store(life)
	n.life = life
	life.CaughtUp(n.feed.Image().Offset())
	select {
	case <-n.applied:
		n.serve(false)
		life.Ready()
	case <-life.Done():
	case <-n.stopping:
	case <-ctx.Done():
	}
	select {
	case <-life.Unfenced():
		return nil
	case <-life.Done():
		return errors.Join(errors.New("the broker could not join its cluster"), life.Err())
	case <-n.stopping:
		return n.failure.err
	case <-ctx.Done():
		return fmt.Errorf("stopped while joining the cluster: %w", ctx.Err())
	}
}
