package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// The thresholds of a View. A cluster that is not reached is probed more often than the others, so that it is always in the
// window while only a third of the others are; the shares take that into account.
const (
	// window is for how long a probe counts. A cluster counts once, with its last probe.
	window = 10 * time.Second
	// blindShare is the share of unreached clusters of a shard that counts towards blindness, on at least blindShards shards
	// and with at least blindClusters clusters in total. Blindness ends below seeingShare.
	blindShare, seeingShare    = 0.4, 0.2
	blindShards, blindClusters = 2, 5
	// deadShare is the share of unreached clusters of an unreachable shard, with at least deadClusters clusters.
	deadShare    = 0.8
	deadClusters = 3
)

// View is what monitor can see at a time.
type View struct {
	// Blind means that no conclusion about any cluster is possible. Reason explains why, as a sentence.
	Blind  bool
	Reason string
	// Since is when monitor became blind, or the zero time.
	Since time.Time
	// Shards are the unreachable provision shards and since when. It is empty while monitor is blind.
	Shards map[string]time.Time
}

// Detector detects that monitor itself cannot see: that probes fail because of monitor's own network or machine and not
// because of the clusters. Without it, one broken gateway would be reported as thousands of broken clusters.
//
// It receives whether each probe reached its server, and computes a View from the clusters that were probed within the last
// seconds. Clusters fail together for two reasons. If most clusters of one provision shard fail, the shard is unreachable.
// If clusters of several shards fail together, or no server can be reached that does not depend on any cluster (an anchor),
// monitor is blind. With one shard and without anchors the two look the same, and the shard is reported.
//
// Each method costs the same for any number of clusters, amortized. A Detector is not safe for concurrent use.
type Detector struct {
	clusters map[string]sample
	shards   map[string]*count
	// recent are the probes of the window in order of time. Probes that a later one of the cluster replaced are ignored.
	recent []event
	// anchors has the failure of each anchor, or an empty string.
	anchors map[string]string
	view    View
}

type sample struct {
	shard   string
	at      time.Time
	reached bool
}

type event struct {
	cluster string
	at      time.Time
}

// count counts the clusters of a shard that were probed within the window.
type count struct{ probed, unreached int }

func (c *count) share() float64 {
	if c.probed == 0 {
		return 0
	}
	return float64(c.unreached) / float64(c.probed)
}

// NewDetector returns a Detector that has seen no probe.
func NewDetector() *Detector {
	return &Detector{clusters: map[string]sample{}, shards: map[string]*count{}, anchors: map[string]string{}}
}

// Observe adds a probe of a cluster. reached is probe.Outcome.Reached. Times must not decrease.
func (d *Detector) Observe(at time.Time, cluster, shard string, reached bool) {
	d.remove(cluster)
	d.clusters[cluster] = sample{shard, at, reached}
	d.recent = append(d.recent, event{cluster, at})
	c := d.shards[shard]
	if c == nil {
		c = &count{}
		d.shards[shard] = c
	}
	c.probed++
	if !reached {
		c.unreached++
	}
}

// ObserveAnchor stores the last probe of an anchor. failure is empty if the anchor answered.
func (d *Detector) ObserveAnchor(name, failure string) {
	d.anchors[name] = failure
}

// Forget removes a cluster that is no longer probed.
func (d *Detector) Forget(cluster string) { d.remove(cluster) }

func (d *Detector) remove(cluster string) {
	s, ok := d.clusters[cluster]
	if !ok {
		return
	}
	delete(d.clusters, cluster)
	c := d.shards[s.shard]
	c.probed--
	if !s.reached {
		c.unreached--
	}
	if c.probed == 0 {
		delete(d.shards, s.shard)
	}
}

// View returns what monitor can see now.
func (d *Detector) View(now time.Time) View {
	d.expire(now)
	reason := d.blindReason()
	switch {
	case reason == "" && d.view.Blind:
		d.view = View{}
	case reason != "" && !d.view.Blind:
		d.view = View{Blind: true, Since: now}
	}
	if d.view.Blind {
		d.view.Reason, d.view.Shards = reason, nil
		return d.view
	}
	unreachable := map[string]time.Time{}
	for shard, c := range d.shards {
		since, known := d.view.Shards[shard]
		switch {
		case known && c.share() >= blindShare:
			unreachable[shard] = since
		case c.probed >= deadClusters && c.share() >= deadShare:
			unreachable[shard] = now
		}
	}
	d.view.Shards = unreachable
	return View{Shards: maps.Clone(unreachable)}
}

func (d *Detector) expire(now time.Time) {
	old := 0
	for ; old < len(d.recent) && now.Sub(d.recent[old].at) > window; old++ {
		e := d.recent[old]
		if d.clusters[e.cluster].at.Equal(e.at) {
			d.remove(e.cluster)
		}
	}
	d.recent = slices.Delete(d.recent, 0, old)
}

// blindReason returns why monitor is blind, or an empty string. While it is blind, lower thresholds apply.
func (d *Detector) blindReason() string {
	if reason := d.anchorReason(); reason != "" {
		return reason
	}
	share := blindShare
	if d.view.Blind {
		share = seeingShare
	}
	var failing []string
	unreached := 0
	for shard, c := range d.shards {
		if c.share() >= share {
			failing = append(failing, shard)
			unreached += c.unreached
		}
	}
	if len(failing) < blindShards || unreached < blindClusters {
		return ""
	}
	slices.Sort(failing)
	return fmt.Sprintf("%d clusters of the shards %s stopped answering together.", unreached, strings.Join(failing, ", "))
}

// anchorReason returns why no anchor can be reached. It returns an empty string if there are no anchors, or if one can be reached.
func (d *Detector) anchorReason() string {
	for _, failure := range d.anchors {
		if failure == "" {
			return ""
		}
	}
	if len(d.anchors) == 0 {
		return ""
	}
	first := slices.Sorted(maps.Keys(d.anchors))[0]
	return fmt.Sprintf("None of the %d anchors can be reached; %s: %s.", len(d.anchors), first, d.anchors[first])
}
