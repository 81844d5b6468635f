package inside

import (
	"context"
	"errors"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// ErrGone is the error of a report about a HostedCluster that does not exist any more.
var ErrGone = errors.New("the HostedCluster does not exist any more")

const (
	// writeTimeout bounds one write. minPause and maxPause are the pauses after a failed one.
	writeTimeout       = 10 * time.Second
	minPause, maxPause = 200 * time.Millisecond, 10 * time.Second
	// logInterval is the shortest time between two log records about failed writes.
	logInterval = 15 * time.Second
)

// write writes the queued reports, one after the other, until ctx ends. A failed write is repeated, with the state of that time.
func (p *Prober) write(ctx context.Context) {
	pauses := backoff.New(minPause, maxPause)
	var logged time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changes:
		}
		for next, report := p.next(); next != nil; next, report = p.next() {
			err := p.writeOne(ctx, next.Cluster, *report)
			p.written(next, report, err)
			if ctx.Err() != nil {
				return
			}
			if err == nil || errors.Is(err, ErrGone) {
				pauses.Reset()
				continue
			}
			if now := p.options.Now(); now.Sub(logged) >= logInterval {
				logged = now
				p.options.Log.WarnContext(ctx, "reporting an API server failed; retrying", logkey.Namespace, next.Namespace, logkey.Name, next.Name, logkey.Error, err)
			}
			_ = pauses.Wait(ctx)
		}
	}
}

func (p *Prober) writeOne(ctx context.Context, c Cluster, report hostedreport.InsideReport) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return p.writer.Write(ctx, c, report)
}

// next takes the first queued cluster that has something to report; nil if there is none.
func (p *Prober) next() (*cluster, *hostedreport.InsideReport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.changed) > 0 {
		c := p.clusters[p.changed[0]]
		p.changed = p.changed[1:]
		if c == nil {
			continue
		}
		if report, ok := p.report(c); ok {
			return c, &report
		}
		c.pending = false
	}
	p.changed = nil
	return nil, nil
}

// written stores the result of a write, and queues the cluster again if the write failed or its report has changed meanwhile.
func (p *Prober) written(c *cluster, report *hostedreport.InsideReport, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.pending = false
	switch {
	case errors.Is(err, ErrGone):
		// The watch removes it.
	case err != nil:
		p.options.Metrics.reports.WithLabelValues("failed").Inc()
		if p.clusters[c.UID] == c {
			p.enqueue(c)
		}
	default:
		p.options.Metrics.reports.WithLabelValues("written").Inc()
		c.Written, p.beaten = report, report.Observed
		if p.clusters[c.UID] == c {
			p.note(c)
		}
	}
}
