package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/audit/sink"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/recording"
	"github.com/hcpmesh/hcpmesh/internal/seal"
)

// maxListedRecordings limits the length of a list.
const maxListedRecordings = 1000

// Recordings has the recordings of commands in access sessions.
type Recordings struct {
	Storage sink.Storage
	// Keys opens them.
	Keys *seal.PrivateKeys
	// Signers returns the public audit keys of the session gateway, one of which has signed each recording.
	Signers func() audit.Keys
}

func (s *Server) listRecordings(ctx context.Context, rq *request) (any, error) {
	query := rq.http.URL.Query()
	filter := database.AccessRecordingFilter{SessionID: strings.ToLower(query.Get("session"))}
	if text := query.Get("cluster"); text != "" {
		cluster, err := s.finder.One(ctx, text)
		if err != nil {
			return nil, err
		}
		filter.ClusterUID = cluster.UID
	}
	list := adminv1.RecordingList{Items: []adminv1.Recording{}}
	keepNewest := func() {
		slices.SortFunc(list.Items, func(a, b adminv1.Recording) int {
			return cmp.Or(b.StartTime.Compare(a.StartTime), strings.Compare(a.ID, b.ID))
		})
		list.Items = list.Items[:min(len(list.Items), maxListedRecordings)]
	}
	err := s.Database.EachAccessRecording(ctx, filter, func(d *database.AccessRecordingDocument) error {
		if list.Items = append(list.Items, recordingResponse(d)); len(list.Items) >= 2*maxListedRecordings {
			keepNewest()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	keepNewest()
	return list, nil
}

func (s *Server) getRecording(ctx context.Context, rq *request) (any, error) {
	found, err := s.recordingInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	return recordingResponse(found), nil
}

// recordingInPath returns the description of the recording that the path names, which becomes the object of the audit record.
func (s *Server) recordingInPath(ctx context.Context, rq *request) (*database.AccessRecordingDocument, error) {
	id := strings.ToLower(rq.http.PathValue("recording"))
	var found *database.AccessRecordingDocument
	if recording.ValidID(id) {
		err := s.Database.EachAccessRecording(ctx, database.AccessRecordingFilter{ID: id}, func(d *database.AccessRecordingDocument) error {
			found = d
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if found == nil {
		return nil, apierror.New(apierror.NotFound, "Recording '%s' does not exist.", id)
	}
	rq.audited.object = audit.Object{Kind: "recording", ID: found.RecordingID, ResourceID: found.ResourceID, Cluster: found.ClusterUID, Shard: found.Shard}
	rq.audited.operation = found.SessionID
	return found, nil
}

func recordingResponse(d *database.AccessRecordingDocument) adminv1.Recording {
	return adminv1.Recording{
		ID: d.RecordingID, SessionID: d.SessionID, Cluster: adminv1.ElevationCluster{UID: d.ClusterUID, ResourceID: d.ResourceID}, Shard: d.Shard, Name: d.Name, ObjectID: d.ObjectID,
		Reason: d.Reason, Ticket: d.Ticket, Kind: d.Kind, Namespace: d.Namespace, Pod: d.Pod, Container: d.Container, TTY: d.TTY, StartTime: d.StartTime,
		EndTime: d.EndTime, EndReason: d.EndReason, Complete: d.Complete, Bytes: d.Bytes,
	}
}

// openRecording returns the content of a recording.
func (s *Server) openRecording(ctx context.Context, rq *request) (any, error) {
	if s.Recordings == nil {
		return nil, apierror.New(apierror.FailedPrecondition, "admin was started without --recording-sink-dir or --recording-sink-url.")
	}
	unverified, err := rq.flag("unverified")
	if err != nil {
		return nil, err
	}
	found, err := s.recordingInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	name := recording.LogName(found.RecordingID)
	size, err := s.Recordings.Storage.Size(ctx, name)
	switch {
	case err != nil:
		return nil, s.recordingFailure(ctx, found.RecordingID, err)
	case found.EndTime != nil && size < found.Bytes:
		return nil, s.recordingFailure(ctx, found.RecordingID, fmt.Errorf("%w: it has %d of %d bytes", recording.ErrChanged, size, found.Bytes))
	case size == 0:
		return nil, apierror.New(apierror.FailedPrecondition, "Nothing of recording '%s' is exported yet.", found.RecordingID)
	}
	log, err := s.Recordings.Storage.Open(ctx, name, 0)
	if err != nil {
		return nil, s.recordingFailure(ctx, found.RecordingID, err)
	}
	reader, err := s.Recordings.reader(log, unverified)
	if err == nil && !describes(found, reader.Facts()) {
		err = fmt.Errorf("%w: it has other facts than its description", recording.ErrChanged)
	}
	if err != nil {
		_ = log.Close()
		return nil, s.recordingFailure(ctx, found.RecordingID, err)
	}
	return &recordingContent{server: s, described: found, log: log, reader: reader}, nil
}

// reader returns the Reader of a log.
func (r *Recordings) reader(log io.Reader, unverified bool) (*recording.Reader, error) {
	if unverified {
		return recording.NewUnverifiedReader(log, r.Keys)
	}
	return recording.NewReader(log, r.Keys, r.Signers())
}

// describes reports whether a description has the facts of a recording. Whoever can write descriptions cannot sign a recording.
func describes(d *database.AccessRecordingDocument, facts recording.Facts) bool {
	if !facts.Start.Equal(d.StartTime) {
		return false
	}
	return facts == recording.Facts{ID: d.RecordingID, SessionID: d.SessionID, ClusterUID: d.ClusterUID, ResourceID: d.ResourceID, Shard: d.Shard,
		Owner: recording.Person{Name: d.Name, ObjectID: d.ObjectID, TenantID: d.TenantID}, Reason: d.Reason, Ticket: d.Ticket, Start: facts.Start, Kind: d.Kind,
		Namespace: d.Namespace, Pod: d.Pod, Container: d.Container, TTY: d.TTY}
}

// recordingFailure returns the error of a recording that cannot be read. A change and a missing signature are logged, because somebody may have
// tampered with the storage.
func (s *Server) recordingFailure(ctx context.Context, id string, err error) error {
	if errors.Is(err, recording.ErrUnsigned) {
		s.Log.ErrorContext(ctx, "a recording has no valid signature", logkey.RequestID, id, logkey.Error, err)
		return apierror.New(apierror.FailedPrecondition, "Recording '%s' has %v. It was changed or forged, or a release before signatures has written it. "+
			"'hcpctl access recording --unverified' shows it nevertheless.", id, err).WithCause(err)
	}
	if errors.Is(err, recording.ErrChanged) || errors.Is(err, recording.ErrFormat) {
		s.Log.ErrorContext(ctx, "a recording was changed, or no key opens it", logkey.RequestID, id, logkey.Error, err)
		return apierror.New(apierror.FailedPrecondition, "Recording '%s' was changed, or --recording-private-key-file does not have its key.", id).WithCause(err)
	}
	return apierror.New(apierror.Unavailable, "The storage of recordings cannot be read.").WithCause(err)
}

// recordingContent is the response with the content of a recording.
type recordingContent struct {
	server    *Server
	described *database.AccessRecordingDocument
	log       io.Closer
	reader    *recording.Reader
}

// writeTo implements streamed.
func (c *recordingContent) writeTo(ctx context.Context, w io.Writer) error {
	err := c.reader.WriteAsciicast(w)
	if err == nil && c.described.Complete && c.reader.End() == nil {
		err = fmt.Errorf("%w: its end is missing", recording.ErrChanged)
	}
	if err != nil {
		return c.server.recordingFailure(ctx, c.described.RecordingID, err)
	}
	return nil
}

// close implements streamed.
func (c *recordingContent) close() { _ = c.log.Close() }

// streamed is a response that is not JSON.
type streamed interface {
	// writeTo writes the response. After an error the response is not complete.
	writeTo(ctx context.Context, w io.Writer) error
	close()
}

// stream sends a response that is not JSON. It aborts the connection if the response cannot be completed, so that the client notices.
func (s *Server) stream(ctx context.Context, rq *request, route *Route, body streamed) {
	rq.status = route.Status
	rq.w.Header().Set("Content-Type", route.ContentType)
	rq.w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(rq.w).SetWriteDeadline(time.Now().Add(route.Timeout)) // a server without deadlines needs none
	rq.w.WriteHeader(rq.status)
	if err := body.writeTo(ctx, rq.w); err != nil {
		rq.cause, rq.aborted = err, true
	}
}
