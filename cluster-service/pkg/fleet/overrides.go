package fleet

import (
	"time"

	csv1 "github.com/hcpmesh/hcpmesh/api/clusterservice/v1"
)

// Paused returns the end of the cluster's pause; zero if it was not paused. The time may have passed: the management
// cluster then ignores the pause, so it need not be removed.
func (c *Cluster) Paused() time.Time {
	if until := c.Overrides.GetPause().GetUntil(); until != nil {
		return until.AsTime()
	}
	return time.Time{}
}

// Pause pauses the cluster and replaces an earlier pause.
func (c *Cluster) Pause(now, until time.Time, actor *csv1.Actor) {
	c.overrides().Pause = &csv1.ClusterPause{Until: timestamp(until), Actor: actor, Time: timestamp(now)}
}

// Resume removes the pause.
func (c *Cluster) Resume() { c.overrides().Pause = nil }

// SetSize overrides the size class of the control plane. An empty size removes the override.
func (c *Cluster) SetSize(now time.Time, size string, actor *csv1.Actor) {
	c.overrides().Size = nil
	if size != "" {
		c.Overrides.Size = &csv1.ClusterSizeOverride{Size: size, Actor: actor, Time: timestamp(now)}
	}
}

func (c *Cluster) overrides() *csv1.ClusterOverrides {
	if c.Overrides == nil {
		c.Overrides = &csv1.ClusterOverrides{}
	}
	return c.Overrides
}

// RetryWorks makes all works of an aggregate due now. The content of desired works is published again, and deletions are
// requested again. Rejections and back-offs are cleared. RetryWorks returns the number of works.
func (t *ClusterAggregate) RetryWorks() int {
	for _, w := range t.Works {
		w.Attempts, w.Error, w.Refused, w.RetryTime = 0, "", false, time.Time{}
		if !w.Deleting() {
			w.Desired++
		}
	}
	return len(t.Works)
}
