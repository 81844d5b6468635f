package server

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/hcpmesh/hcpmesh/admin/pkg/audithistory"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
)

// AuditHistory reads the audit records about a cluster from the sink and the witness. *audithistory.Reader implements it.
type AuditHistory interface {
	Page(ctx context.Context, cluster, token string, size int) (records []audithistory.Record, next string, err error)
}

// listAccessRecords lists who did something with a cluster or read sensitive data of it, from the exported audit records.
func (s *Server) listAccessRecords(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	cluster, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	records, next, err := s.AuditHistory.Page(ctx, cluster.ClusterUID, token, size)
	if errors.Is(err, audithistory.ErrToken) {
		return nil, apierror.New(apierror.InvalidParameter, "Invalid value: must be the token of a page.").WithTarget("pageToken")
	}
	if err != nil {
		return nil, auditFailure(err)
	}
	list := adminv1.AccessRecordList{Value: []adminv1.AccessRecord{}}
	for _, record := range records {
		list.Value = append(list.Value, accessRecord(cluster.ResourceID, record))
	}
	if next != "" {
		query := url.Values{"pageSize": {strconv.Itoa(size)}, "pageToken": {next}}
		link := url.URL{Scheme: "https", Host: rq.http.Host, Path: rq.http.URL.Path, RawQuery: query.Encode()}
		list.NextLink = link.String()
	}
	return list, nil
}

// auditFailure returns the error of a request that needs audit records that could not be read.
func auditFailure(err error) error {
	if errors.Is(err, audit.ErrChanged) {
		return fmt.Errorf("the audit sink has a changed record: run `hcpctl audit verify`: %w", err)
	}
	return apierror.New(apierror.Unavailable, "The audit sink cannot be read.").WithCause(err)
}

// accessRecord returns the form of an audit record for customers. It leaves out the calling workload, the tenant and the elevation.
func accessRecord(cluster string, line audithistory.Record) adminv1.AccessRecord {
	name, r := fmt.Sprintf("%s-%d", line.Writer, line.Sequence), line.Record
	return adminv1.AccessRecord{
		ID: cluster + "/auditRecords/" + name, Name: name, Type: adminv1.AccessRecordType,
		Properties: adminv1.AccessRecordProperties{
			Time: line.Time, Person: r.Person.Name, Role: r.Person.Role, Action: r.Action, ObjectKind: r.Object.Kind, ObjectID: r.Object.ID,
			Level: adminv1.Level(r.Level), Reason: r.Reason, Ticket: r.Ticket, Outcome: r.Outcome, ErrorCode: r.Code, OperationID: r.Operation,
			Unconfirmed: !line.Confirmed,
		},
	}
}
