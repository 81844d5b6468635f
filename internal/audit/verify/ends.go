package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/audit/writer"
	"github.com/hcpmesh/hcpmesh/internal/backoff"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

const (
	// checkEvery is the pause between two checks of all chains.
	checkEvery = 5 * time.Minute
	// maxRead is the number of bytes of all logs in which one check verifies the lines.
	maxRead = 16 << 20
)

// Ends checks that each chain ends with the checkpoint that the witness has, also the chains of writers that have stopped: nobody else checks those. A writer
// that was killed before it confirmed its records is found, and so are records and checkpoints that somebody appends who cannot write the witness.
//
// A check also verifies lines as Verify does: first those that were appended, of maxRead bytes at most, and with the rest of these bytes, lines that it has verified
// before. So it returns to each line of all chains after some checks. If it does not have a key, it reports the chain at a later check: after a rotation, a service may
// have its new key before the verifier has the public part. Ends is not safe for concurrent use.
type Ends struct {
	log       sink.Reader
	witness   sink.WitnessReader
	keys      func() (audit.Keys, error)
	maxRead   int64
	logger    *slog.Logger
	found     *prometheus.CounterVec
	lastCheck prometheus.Gauge
	// chains are the ends of all logs by writer; nil before the first check.
	chains map[string]*chainEnd
	// again verifies lines of a chain that were verified before; nil if no chain is begun. The chains up to latest were verified.
	again  *checker
	latest string
}

// chainEnd is what the last check of a chain has read.
type chainEnd struct {
	size       int64
	checkpoint []byte
	// since is when lines behind the checkpoint were read first; zero if there are none.
	since time.Time
	// reported is true after a finding until the chain is confirmed.
	reported bool
	// lines has verified the lines of the chain up to a place.
	lines *checker
	// unknown is the time of the check that found a checkpoint with an unknown key; zero if there is none.
	unknown time.Time
}

// NewEnds returns Ends. keys returns the public keys of all services. NewEnds registers its metrics.
func NewEnds(log sink.Reader, witness sink.WitnessReader, keys func() (audit.Keys, error), logger *slog.Logger, metrics prometheus.Registerer) *Ends {
	e := &Ends{log: log, witness: witness, keys: keys, maxRead: maxRead, logger: logger, found: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "admin_audit_findings_total", Help: "Findings of the periodic check of audit chains, by reason: unconfirmed lines behind the checkpoint in the witness, a log or a witness that was cut, or lines that verify would report.",
	}, []string{"reason"}), lastCheck: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "admin_audit_last_check_seconds", Help: "Time of the latest periodic check that read all audit chains and keys, or of the start, as Unix time.",
	})}
	metrics.MustRegister(e.found, e.lastCheck, publicKeys(keys))
	e.lastCheck.SetToCurrentTime()
	for _, problem := range []Problem{Changed, Missing, Misplaced, Replaced, Forged, Unconfirmed, Cut} {
		e.found.WithLabelValues(string(problem))
	}
	return e
}

// Run checks until ctx ends. It logs and counts each finding once, and logs failures to read.
func (e *Ends) Run(ctx context.Context) {
	for {
		findings, err := e.Check(ctx, time.Now())
		if err != nil && ctx.Err() == nil {
			e.logger.WarnContext(ctx, "checking audit chains failed; retrying", logkey.Error, err)
		}
		for _, f := range findings {
			e.found.WithLabelValues(string(f.Problem)).Inc()
			e.logger.ErrorContext(ctx, "an audit chain is not confirmed", logkey.Name, f.Writer, logkey.Reason, string(f.Problem), logkey.Error, f.Message)
		}
		if backoff.Sleep(ctx, checkEvery) != nil {
			return
		}
	}
}

// Check returns the findings that the checks before have not returned. An error means that some chains could not be read; the others were checked.
func (e *Ends) Check(ctx context.Context, now time.Time) ([]Finding, error) {
	if e.chains == nil {
		// The witness first: a log exists before its checkpoint.
		witnessed, err := e.witness.Writers(ctx)
		if err != nil {
			return nil, err
		}
		e.chains = map[string]*chainEnd{}
		for _, name := range witnessed {
			e.chains[name] = newChainEnd(name)
		}
	}
	names, err := e.log.Writers(ctx)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	exists, failures := map[string]bool{}, []error(nil)
	for _, name := range names {
		if exists[name] = true; !audit.ValidWriter(name) {
			continue // Verify reports it
		}
		chain := e.chains[name]
		if chain == nil {
			chain = newChainEnd(name)
			e.chains[name] = chain
		}
		problem, message, err := e.checkEnd(ctx, name, chain, now)
		if err != nil {
			failures = append(failures, fmt.Errorf("the audit chain of %s: %w", name, err))
		}
		if problem != "" {
			findings = chain.report(findings, Finding{Writer: name, Problem: problem, Message: message})
		}
	}
	for name, chain := range e.chains {
		if !exists[name] {
			findings = chain.report(findings, Finding{Writer: name, Problem: Cut, Message: "the sink has no log of this writer: the log was deleted"})
		}
	}
	invalid, err := e.verify(ctx, slices.DeleteFunc(names, func(name string) bool { return e.chains[name] == nil }), now)
	for _, finding := range invalid {
		findings = e.chains[finding.Writer].report(findings, finding)
	}
	if err = errors.Join(append(failures, err)...); err == nil {
		e.lastCheck.Set(float64(now.Unix()))
	}
	return findings, err
}

// report appends a finding unless one was reported since the chain was confirmed.
func (c *chainEnd) report(findings []Finding, finding Finding) []Finding {
	if c.reported {
		return findings
	}
	c.reported = true
	return append(findings, finding)
}

// verify verifies lines of the logs with the names, which are sorted.
func (e *Ends) verify(ctx context.Context, names []string, now time.Time) ([]Finding, error) {
	keys, err := e.keys()
	if err != nil {
		return nil, err
	}
	report, left, failures := &Report{}, e.maxRead, []error(nil)
	check := func(c *checker) (ended bool) {
		begin, found, chain := c.size, len(report.Findings), e.chains[c.chain.Writer]
		c.keys, c.report = keys, report
		ended, err := c.readLines(ctx, e.log, e.witness, left, false)
		left -= c.size - begin
		if err != nil {
			failures = append(failures, fmt.Errorf("the audit chain of %s: %w", c.chain.Writer, err))
		}
		switch {
		case c.unknown && (chain.unknown.IsZero() || chain.unknown.Equal(now)):
			report.Findings = report.Findings[:found]
			chain.unknown, chain.lines = now, newChecker(c.chain.Writer)
			return true
		case ended && !c.unknown:
			chain.unknown = time.Time{}
		}
		return ended || err != nil
	}
	for _, name := range names {
		chain := e.chains[name]
		if left > 0 && (chain.size != chain.lines.size || chain.lines.witness.next != nil) {
			check(chain.lines)
		}
	}
	for range names {
		if left <= 0 {
			break
		}
		if e.again == nil {
			i := sort.Search(len(names), func(i int) bool { return names[i] > e.latest }) % len(names)
			e.again, e.latest = newChecker(names[i]), names[i]
		}
		if check(e.again) {
			e.again = nil
		}
	}
	return report.Findings, errors.Join(failures...)
}

func newChainEnd(name string) *chainEnd { return &chainEnd{lines: newChecker(name)} }

// checkEnd checks the end of one chain. The problem is empty if the chain is confirmed, or if its checkpoint is not due.
func (e *Ends) checkEnd(ctx context.Context, name string, chain *chainEnd, now time.Time) (problem Problem, message string, err error) {
	size, err := e.log.Size(ctx, name)
	if err != nil {
		return "", "", err
	}
	if size == chain.size && chain.since.IsZero() && chain.checkpoint != nil {
		return "", "", nil
	}
	if size < chain.size {
		return Cut, fmt.Sprintf("the log had %d bytes and has %d: the end was cut", chain.size, size), nil
	}
	// The witness first: its checkpoint is in what is read later.
	checkpoint, err := e.witness.Checkpoint(ctx, name)
	if err != nil {
		return "", "", err
	}
	if size, err = e.log.Size(ctx, name); err != nil {
		return "", "", err
	}
	confirmed, err := e.endsWith(ctx, name, size, checkpoint)
	if err != nil {
		return "", "", err
	}
	advanced := !bytes.Equal(checkpoint, chain.checkpoint)
	chain.size, chain.checkpoint = size, checkpoint
	switch {
	case confirmed:
		chain.since, chain.reported = time.Time{}, false
	case advanced || chain.since.IsZero():
		chain.since = now
	case now.Sub(chain.since) > writer.MaxUnconfirmed:
		return Unconfirmed, fmt.Sprintf("the log has lines behind the checkpoint in the witness since %s, and their checkpoint was due within %v: "+
			"the writer was killed, cannot write or cannot export, and confirms them later, or they were forged", chain.since.UTC().Format(time.RFC3339), writer.MaxUnconfirmed), nil
	}
	return "", "", nil
}

// endsWith reports whether a log of a size ends with a line.
func (e *Ends) endsWith(ctx context.Context, name string, size int64, line []byte) (matches bool, err error) {
	begin := max(size-int64(len(line))-1, 0) // the newline before the line, unless it is the first one
	if len(line) == 0 || size < int64(len(line)) {
		return false, nil
	}
	content, err := e.log.Open(ctx, name, begin)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	end := make([]byte, size-begin)
	if _, err := io.ReadFull(content, end); err != nil {
		return false, fmt.Errorf("reading the audit sink: %w", err)
	}
	return bytes.HasSuffix(append([]byte("\n"), end...), append([]byte("\n"), line...)), nil
}

// publicKeys is the metric of the public keys that have no end. `hcpctl keys rotate audit` reads it before a service signs with a new key.
type publicKeys func() (audit.Keys, error)

// Describe implements prometheus.Collector.
func (k publicKeys) Describe(descriptions chan<- *prometheus.Desc) { k.gauge().Describe(descriptions) }

// Collect implements prometheus.Collector. It exports no key if one of them cannot be read.
func (k publicKeys) Collect(metrics chan<- prometheus.Metric) {
	gauge := k.gauge()
	keys, _ := k()
	for service, ofService := range keys {
		for id, key := range ofService {
			if key.Until.IsZero() {
				gauge.WithLabelValues(service, id).Set(1)
			}
		}
	}
	gauge.Collect(metrics)
}

func (publicKeys) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "admin_audit_public_key",
		Help: "1 for each public key with which checks verify new records, by the service that signs and the ID of the key."}, []string{"service", "key"})
}
