// Package logforwarder delivers the logs of hosted control planes to the storage accounts that customers name in diagnostic settings.
//
// A stream delivers one category of one cluster to one account. It reads the control plane's log file, appends a batch to the customer's
// blob, stores its position, and only then reads on. So each line is delivered at least once, the file itself is the queue, and a full or
// forbidden account stops only its own streams. While an append fails, a stream keeps nothing in memory: it reads the batch again.
//
// A line that cannot become a record, and a record that the storage refuses permanently, go to the poison box. Files that the control plane
// removed before they were read are counted. A delivery that fails for some minutes is reported in an annotation of the HostedCluster, for the
// customer (package internal/hostedreport). The package never writes lines of customers' logs to its own log.
package logforwarder

import (
	"time"

	"github.com/hcpmesh/hcpmesh/internal/customerlog"
)

const (
	// batchBytes is the size at which a batch ends. A batch has one line at least.
	batchBytes = 256 << 10
	// maxBlock is the maximum size of a block of an append blob in all versions of the API.
	maxBlock = 4 << 20
	// maxLine bounds a line of a log. An API server limits a URL and a user agent to 1 MiB together.
	maxLine = 1 << 20
	// maxSettings is the number of diagnostic settings of a resource that Azure Monitor permits.
	maxSettings = 5
	// requestTimeout bounds a request to Azure.
	requestTimeout = 30 * time.Second
	// stopGrace is the time that an append in progress has when the forwarder ends, so that it is not repeated by the next one.
	stopGrace = 3 * time.Second
	// drainTime bounds the delivery of the rest of the logs of a control plane that was deleted.
	drainTime = 10 * time.Minute

	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// source is the log file of a category.
type source struct {
	category customerlog.Category
	file     string
	// decode returns the time and the content of a line. deliver is false for a line of another category. An error is the reason why the line
	// cannot become a record.
	decode func(line []byte, now time.Time) (at time.Time, content []byte, deliver bool, err error)
}

// sources returns the log files that a control plane has. The other categories have no source.
func sources() []source {
	return []source{
		{customerlog.KubeAudit, auditFile, decodeAudit(func(customerlog.AuditEvent) bool { return true })},
		{customerlog.KubeAuditAdmin, auditFile, decodeAudit(func(e customerlog.AuditEvent) bool { return e.Changes })},
		{customerlog.KubeAPIServer, apiServerFile, decodeText},
	}
}

// The names of log files in the folder of a control plane.
const (
	auditFile     = "audit.log"
	apiServerFile = "kube-apiserver.log"
)

func decodeAudit(selects func(customerlog.AuditEvent) bool) func([]byte, time.Time) (time.Time, []byte, bool, error) {
	return func(line []byte, now time.Time) (time.Time, []byte, bool, error) {
		event, err := customerlog.ParseAudit(line)
		if err != nil {
			return time.Time{}, nil, false, err
		}
		if event.Time.IsZero() {
			event.Time = now
		}
		return event.Time, event.Line, selects(event), nil
	}
}

// decodeText decodes a line of text, which arrives with the time at which it is read.
func decodeText(line []byte, now time.Time) (time.Time, []byte, bool, error) {
	return now, line, len(line) > 0, nil
}
