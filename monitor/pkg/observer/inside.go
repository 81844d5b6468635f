package observer

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/judge"
	"github.com/hcpmesh/hcpmesh/monitor/pkg/roster"
)

// insideProber is the prober of a provision shard's management cluster, as its reports show it.
type insideProber struct {
	// clusters is the number of clusters of the shard that it has reported.
	clusters int
	// seen is the time of its latest report about any of them, and silent that it is older than judge.StaleAfter.
	seen   time.Time
	silent bool
}

// noteReport notes that the entry of a cluster is replaced; after has no UID if the cluster is removed. Reports of every
// cluster of the region count, whichever replica owns it.
func (o *Observer) noteReport(before, after roster.Entry) {
	if shard := before.Cluster.Shard; before.Inside.State != "" {
		if i := o.probers[shard]; i.clusters > 1 {
			i.clusters--
		} else if after.Inside.State == "" || after.Cluster.Shard != shard {
			delete(o.probers, shard)
		} else {
			i.clusters = 0
		}
	}
	if after.Inside.State == "" {
		return
	}
	i := o.probers[after.Cluster.Shard]
	if i == nil {
		i = &insideProber{}
		o.probers[after.Cluster.Shard] = i
	}
	i.clusters++
	// A clock that is ahead must not make a report last longer.
	now, seen := o.now(), after.Inside.Observed
	if seen.After(now) {
		seen = now
	}
	if seen.After(i.seen) {
		i.seen = seen
	}
}

// noteSilence records that the prober of a shard fell silent, or reports again: both change the verdicts about its clusters.
func (o *Observer) noteSilence(ctx context.Context, now time.Time) {
	for shard, i := range o.probers {
		silent := now.Sub(i.seen) > judge.StaleAfter
		if silent == i.silent {
			continue
		}
		i.silent = silent
		log := o.log.With(logkey.Shard, shard)
		if silent {
			log.WarnContext(ctx, "the prober of a management cluster does not report", logkey.Since, i.seen.UTC().Format(time.RFC3339))
		} else {
			log.InfoContext(ctx, "the prober of a management cluster reports again")
		}
		for _, c := range o.clusters {
			if c.entry.Cluster.Shard == shard {
				o.decide(ctx, c, now)
			}
		}
	}
}

// InsideReports returns when the prober of each provision shard's management cluster reported last. It has no shard without a report.
func (o *Observer) InsideReports() map[string]time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := make(map[string]time.Time, len(o.probers))
	for shard, i := range o.probers {
		seen[shard] = i.seen
	}
	return seen
}
