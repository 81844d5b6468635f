package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/admin/pkg/elevation"
	"github.com/hcpmesh/hcpmesh/api/adminv1"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/audit"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// The bounds of one page of accesses.
const (
	// maxElevationPages is the number of pages of the region's elevations that are searched.
	maxElevationPages = 10
	// maxActionPages and maxAuditPages bound the actions and the audit records of the cluster that are read, in pages of database.MaxPageSize.
	maxActionPages = 2
	maxAuditPages  = 5
)

// listAccesses lists the accesses of engineers to a cluster. The elevations, the sessions and the actions are those of Cosmos DB; what was done is
// counted from the audit.
func (s *Server) listAccesses(ctx context.Context, rq *request) (any, error) {
	size, token, err := rq.page()
	if err != nil {
		return nil, err
	}
	format := rq.http.URL.Query().Get("format")
	if format != "" && format != adminv1.AccessFormatARM {
		return nil, apierror.New(apierror.InvalidParameter, "Invalid value: '%s': must be %s.", format, adminv1.AccessFormatARM).WithTarget("format")
	}
	cluster, err := s.clusterInPath(ctx, rq)
	if err != nil {
		return nil, err
	}
	acted, err := s.elevationsThatActed(ctx, cluster.ClusterUID)
	if err != nil {
		return nil, err
	}
	found, next, err := s.elevationsOf(ctx, cluster.ClusterUID, acted, token, size)
	if err != nil {
		return nil, err
	}
	facts, err := s.accessFacts(ctx, cluster.ClusterUID, found)
	if err != nil {
		return nil, err
	}
	list := adminv1.AccessList{Value: []adminv1.Access{}}
	for _, e := range found {
		list.Value = append(list.Value, facts[e.ElevationID].access(cluster, e, format == ""))
	}
	if next != "" {
		query := url.Values{"pageSize": {strconv.Itoa(size)}, "pageToken": {next}}
		if format != "" {
			query.Set("format", format)
		}
		link := url.URL{Scheme: "https", Host: rq.http.Host, Path: rq.http.URL.Path, RawQuery: query.Encode()}
		list.NextLink = link.String()
	}
	return list, nil
}

// elevationsThatActed returns the IDs of the elevations of the newest actions on a cluster.
func (s *Server) elevationsThatActed(ctx context.Context, cluster string) (map[string]bool, error) {
	acted, next := map[string]bool{}, ""
	for range maxActionPages {
		records, continuation, err := s.Database.AdminRecords(ctx, database.AdminFilter{Kinds: []database.Kind{database.AdminOperationKind}, Target: cluster}, next, database.MaxPageSize)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			acted[r.Operation.Value.Actor.ElevationID] = true
		}
		if next = continuation; next == "" {
			break
		}
	}
	return acted, nil
}

// elevationsOf returns a page of the activated elevations that permitted access to a cluster: those that are limited to it, and those for the region
// that were used for it. It leaves out documents that admin did not write.
func (s *Server) elevationsOf(ctx context.Context, cluster string, acted map[string]bool, token string, size int) (found []*database.ElevationDocument, next string, err error) {
	next = token
	for range maxElevationPages {
		records, continuation, err := s.Database.AdminRecords(ctx, database.AdminFilter{Kinds: []database.Kind{database.ElevationKind}}, next, size)
		if err != nil {
			return nil, "", err
		}
		for _, r := range records {
			e := &r.Elevation.Value
			used := e.Target.ClusterUID == cluster || acted[e.ElevationID] || slices.ContainsFunc(e.Credentials, func(c database.ElevationCredentials) bool { return c.ClusterUID == cluster })
			if !used || e.StartTime.IsZero() {
				continue
			}
			if err := s.Seals.Verify(e); err != nil {
				s.Log.WarnContext(ctx, "leaving out an elevation that admin did not write", logkey.OperationID, e.ElevationID, logkey.Error, err)
				continue
			}
			found = append(found, e)
		}
		if next = continuation; next == "" || len(found) > 0 {
			break
		}
	}
	return found, next, nil
}

// accessFacts are the uses and the activity of one elevation for one cluster.
type accessFacts struct {
	uses       map[string]*adminv1.AccessUse
	activity   map[[2]string]*adminv1.AccessActivity
	incomplete string
	// unconfirmed is true if an audit record that no checkpoint confirms was added.
	unconfirmed bool
	// counted are the actions that were counted: each one has records of several services.
	counted map[string]bool
}

// accessFacts returns the facts about elevations by ID.
func (s *Server) accessFacts(ctx context.Context, cluster string, found []*database.ElevationDocument) (map[string]*accessFacts, error) {
	facts := map[string]*accessFacts{}
	if len(found) == 0 {
		return facts, nil
	}
	oldest := found[0].RequestTime
	for _, e := range found {
		facts[e.ElevationID] = &accessFacts{uses: map[string]*adminv1.AccessUse{}, activity: map[[2]string]*adminv1.AccessActivity{}, counted: map[string]bool{}}
		if e.RequestTime.Before(oldest) {
			oldest = e.RequestTime
		}
	}
	reached, problem := s.readActivity(ctx, cluster, oldest, facts)
	for _, e := range found {
		if problem != "" && e.RequestTime.Before(reached) {
			facts[e.ElevationID].incomplete = problem
		}
	}
	return facts, s.Database.EachAccessSession(ctx, database.AccessSessionFilter{ClusterUID: cluster}, func(item *database.Item[database.AccessSessionDocument]) error {
		if f := facts[item.Value.Owner.ElevationID]; f != nil {
			session, level := &item.Value, adminv1.LevelAdmin
			if adminv1.AccessMode(session.Mode) == adminv1.AccessRead {
				level = adminv1.LevelReader
			}
			f.uses[session.SessionID] = &adminv1.AccessUse{ID: session.SessionID, Kind: adminv1.AccessUseSession, Level: level, StartTime: session.ReadyTime, EndTime: session.EndTime}
		}
		return nil
	})
}

// readActivity adds the audit records about a cluster to facts, from the newest back to a time. If it cannot read all of them, it returns why, and
// the time back to which it did.
func (s *Server) readActivity(ctx context.Context, cluster string, oldest time.Time, facts map[string]*accessFacts) (reached time.Time, problem string) {
	reached = time.Now()
	token := ""
	for range maxAuditPages {
		lines, next, err := s.AuditHistory.Page(ctx, cluster, token, database.MaxPageSize)
		if err != nil {
			s.Log.WarnContext(ctx, "reading the audit of a cluster failed", logkey.ClusterUID, cluster, logkey.Error, err)
			return time.Now(), "The audit cannot be read."
		}
		for _, line := range lines {
			if reached = line.Time; reached.Before(oldest) {
				return reached, ""
			}
			if f := facts[line.Record.Person.Elevation]; f != nil {
				f.add(line.Line)
				f.unconfirmed = f.unconfirmed || !line.Confirmed
			}
		}
		if token = next; token == "" {
			return reached, ""
		}
	}
	return reached, "The audit has too many records about the cluster. Those before " + reached.UTC().Format(time.RFC3339) + " were not counted."
}

// kubernetesVerb begins the actions of requests to an API server.
const kubernetesVerb = "kubernetes."

// credentialEnds are the events that end a credential, and credentialIssued is that of its beginning.
var credentialEnds = []string{"credentials.revoked", "credentials.expired", "credentials.canceled", "credentials.failed"}

const credentialIssued = "credentials.issued"

// add adds an audit record, the newest first.
func (f *accessFacts) add(line audit.Line) {
	r := line.Record
	if r.Object.Kind == "credential" {
		use := f.uses[r.Object.ID]
		if use == nil {
			use = &adminv1.AccessUse{ID: r.Object.ID, Kind: adminv1.AccessUseCredential, Level: adminv1.Level(r.Level)}
			f.uses[r.Object.ID] = use
		}
		switch at := line.Time; {
		case r.Action == credentialIssued:
			use.StartTime = &at
		case slices.Contains(credentialEnds, r.Action):
			use.EndTime = &at
		}
		return
	}
	verb, kubernetes := strings.CutPrefix(r.Action, kubernetesVerb)
	if !kubernetes {
		id := r.Action + " " + cmp.Or(r.Operation, r.Request)
		if adminv1.FindAction(r.Action) == nil || f.counted[id] {
			return
		}
		f.counted[id] = true
	}
	key := [2]string{verb, r.Object.Kind}
	entry := f.activity[key]
	if entry == nil {
		entry = &adminv1.AccessActivity{Verb: verb, Resource: r.Object.Kind}
		f.activity[key] = entry
	}
	count := max(r.Count, 1)
	entry.Count += count
	switch r.Outcome {
	case audit.Failed:
		entry.Failed += count
	case audit.Refused:
		entry.Refused += count
	}
}

// access returns the access under an elevation. Only engineers see names.
func (f *accessFacts) access(cluster database.AdminTarget, e *database.ElevationDocument, names bool) adminv1.Access {
	subscription := subscriptionOf(cluster.ResourceID)
	person := func(name, tenant, objectID string) adminv1.AccessPerson {
		p := adminv1.AccessPerson{Alias: alias(subscription, tenant, objectID), Organization: tenant}
		if names {
			p.Name = name
		}
		return p
	}
	p := adminv1.AccessProperties{
		Engineer: person(e.Actor.Name, e.Actor.TenantID, e.Actor.ObjectID), Class: adminv1.AccessClass(e.Class), Role: adminv1.Role(e.Actor.Role), Scope: database.TargetRegion,
		State: elevation.StateAt(e, time.Now()), Reason: e.Actor.Reason, Ticket: e.Actor.Ticket, RequestTime: e.RequestTime, StartTime: e.StartTime, EndTime: e.ExpirationTime,
		Emergency: e.Emergency, Uses: []adminv1.AccessUse{}, Activity: []adminv1.AccessActivity{}, ActivityIncomplete: f.incomplete, ActivityUnconfirmed: f.unconfirmed,
	}
	if e.Target.ClusterUID != "" {
		p.Scope = "cluster"
	}
	if e.EndTime != nil {
		p.EndTime = *e.EndTime
	}
	if d := e.Decision; d != nil && d.Approved {
		p.Approval = &adminv1.AccessApproval{Approver: person(d.Name, d.TenantID, d.ObjectID), Reason: d.Reason, Time: d.Time}
	}
	for _, use := range f.uses {
		p.Uses = append(p.Uses, *use)
	}
	slices.SortFunc(p.Uses, func(a, b adminv1.AccessUse) int {
		return cmp.Or(startOf(a).Compare(startOf(b)), strings.Compare(a.ID, b.ID))
	})
	for _, key := range slices.SortedFunc(maps.Keys(f.activity), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		p.Activity = append(p.Activity, *f.activity[key])
	}
	return adminv1.Access{ID: cluster.ResourceID + "/accessRecords/" + e.ElevationID, Name: e.ElevationID, Type: adminv1.AccessType, Properties: p,
		SystemData: adminv1.AccessSystemData{CreatedBy: p.Engineer.Alias, CreatedByType: "User", CreatedAt: e.RequestTime}}
}

// startOf returns the beginning of a use; the zero time if it has not begun.
func startOf(u adminv1.AccessUse) time.Time {
	if u.StartTime == nil {
		return time.Time{}
	}
	return *u.StartTime
}

// subscriptionOf returns the ID of the subscription of an ARM resource ID, in lower case.
func subscriptionOf(resourceID string) string {
	rest, _ := strings.CutPrefix(strings.ToLower(resourceID), "/subscriptions/")
	id, _, _ := strings.Cut(rest, "/")
	return id
}

// alias returns the pseudonym of a person for the customers of a subscription (decision 0072).
func alias(subscription, tenant, objectID string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(strings.Join([]string{"hcpmesh engineer", subscription, tenant, objectID}, "\n"))))
	return "engineer-" + hex.EncodeToString(sum[:5])
}
