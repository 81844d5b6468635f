package database

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// AdminPartition is the partition of admin operations and elevations, in place of a subscription ID. Its documents are in the
// container Admin, so that services that work only on customers' resources have no right to read or write them. One replica of
// the backend at a time owns the partition, and these documents have one order. It also has the document of the components that
// are away.
const AdminPartition = "admin"

// AdminOperationState is the state of an admin operation.
type AdminOperationState string

// The states. Succeeded and Failed are terminal.
const (
	AdminAccepted  AdminOperationState = "Accepted"
	AdminRunning   AdminOperationState = "Running"
	AdminSucceeded AdminOperationState = "Succeeded"
	AdminFailed    AdminOperationState = "Failed"
)

// Terminal reports whether the state is final.
func (s AdminOperationState) Terminal() bool { return s == AdminSucceeded || s == AdminFailed }

// AdminActor is the engineer who acts, with the role, the elevation and the reason.
type AdminActor struct {
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId,omitempty"`
	// Role that the action requires, and the elevation that granted it.
	Role        string `json:"role"`
	ElevationID string `json:"elevationId,omitempty"`
	Reason      string `json:"reason"`
	Ticket      string `json:"ticket,omitempty"`
}

// AdminTarget is the object of an action.
type AdminTarget struct {
	// Kind of the object, for example cluster or provisionShard. ID is its UID or name.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// ResourceID is the ARM resource ID, if there is one. ClusterUID is the cluster that the object belongs to.
	ResourceID string `json:"resourceId,omitempty"`
	ClusterUID string `json:"clusterUid,omitempty"`
}

// AdminOperationDocument is one requested action and its outcome. Admin creates it; the backend executes it.
type AdminOperationDocument struct {
	OperationID string `json:"operationId"`
	// SortKey orders admin operations and elevations: see AdminSortKey.
	SortKey string `json:"place"`
	// Action is the name of the route, for example clusters.pause.
	Action string      `json:"action"`
	Target AdminTarget `json:"target"`
	// Parameters of the action. They never contain secrets.
	Parameters json.RawMessage     `json:"parameters,omitempty"`
	Actor      AdminActor          `json:"actor"`
	State      AdminOperationState `json:"state"`
	StartTime  time.Time           `json:"startTime"`
	// LastTransitionTime is when State last changed. EndTime is set with a terminal state.
	LastTransitionTime time.Time  `json:"lastTransitionTime"`
	EndTime            *time.Time `json:"endTime,omitempty"`
	// Attempts is the number of attempts that the backend has started.
	Attempts int32 `json:"attempts,omitempty"`
	// Result describes a success, Error a failure.
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *OperationError `json:"error,omitempty"`
	RequestID string          `json:"requestId,omitempty"`
	// RequestDigest identifies the content of the request, so that a repeated request returns the same operation. It
	// may be empty.
	RequestDigest string `json:"requestDigest,omitempty"`
	// Intent is what the engineer asked for, signed by admin; see package intent. Nothing else in the document authorizes its
	// execution, because whoever can write to the database can write it. It is never shown.
	Intent string `json:"intent,omitempty"`
}

// End makes the operation terminal.
func (o *AdminOperationDocument) End(state AdminOperationState, failure *OperationError, now time.Time) {
	o.State, o.Error = state, failure
	o.LastTransitionTime, o.EndTime = now, &now
}

// AdminSortKey returns the sort key of an admin operation or elevation: its time and ID.
func AdminSortKey(at time.Time, id string) string {
	return at.UTC().Format("2006-01-02T15:04:05.000000000Z") + "/" + id
}

// AdminOperationKey returns the key of an admin operation.
func AdminOperationKey(id string) Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/operations/" + id}
}

// ElevationKey returns the key of an elevation.
func ElevationKey(id string) Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/elevations/" + id}
}

// AdminFilter selects admin records. An empty field selects all.
type AdminFilter struct {
	// Kinds are AdminOperationKind, ElevationKind or both; empty means both.
	Kinds []Kind
	// ObjectID of the actor. Target is the ID of the target or the UID of its cluster.
	ObjectID, Target string
	// State of an operation or an elevation.
	State string
	// ActiveOnly selects operations that are not terminal and elevations that were neither denied nor ended.
	ActiveOnly bool
	// UnreviewedOnly selects emergency elevations that nobody has reviewed.
	UnreviewedOnly bool
	// Since selects records that were created at this time or later.
	Since time.Time
}

// AdminRecord is an admin operation or an elevation. One field is set.
type AdminRecord struct {
	Operation *Item[AdminOperationDocument]
	Elevation *Item[ElevationDocument]
}

// AdminRecords returns a page of admin records, newest first. The continuation is empty on the last page.
func (db *DB) AdminRecords(ctx context.Context, filter AdminFilter, continuation string, limit int) (records []AdminRecord, next string, err error) {
	if limit < 1 || limit > MaxPageSize {
		return nil, "", fmt.Errorf("listing a page of %d items: the size must be 1 to %d", limit, MaxPageSize)
	}
	if len(filter.Kinds) == 0 {
		filter.Kinds = []Kind{AdminOperationKind, ElevationKind}
	}
	// Records are kept for a year, so each query must be answered by the index. An equality with a kind also lets the emulator skip
	// documents of other kinds without parsing them.
	query := strings.Builder{}
	parameters := []azcosmos.QueryParameter{{Name: "@kind", Value: filter.Kinds[0]}}
	if len(filter.Kinds) == 1 {
		query.WriteString("SELECT * FROM c WHERE c.kind = @kind")
	} else {
		query.WriteString("SELECT * FROM c WHERE c.kind IN (@kind, @otherKind)")
		parameters = append(parameters, azcosmos.QueryParameter{Name: "@otherKind", Value: filter.Kinds[1]})
	}
	add := func(condition, name string, value string) {
		if value != "" {
			query.WriteString(" AND " + condition)
			parameters = append(parameters, azcosmos.QueryParameter{Name: name, Value: value})
		}
	}
	add("c.properties.place < @before", "@before", continuation)
	if !filter.Since.IsZero() {
		add("c.properties.place >= @since", "@since", AdminSortKey(filter.Since, ""))
	}
	add("c.properties.actor.objectId = @object", "@object", filter.ObjectID)
	add("(c.properties.target.clusterUid = @target OR c.properties.target.id = @target)", "@target", filter.Target)
	add("c.properties.state = @state", "@state", filter.State)
	if filter.ActiveOnly {
		query.WriteString(" AND NOT IS_DEFINED(c.properties.endTime)")
	}
	if filter.UnreviewedOnly {
		query.WriteString(" AND c.properties.emergency = true AND NOT IS_DEFINED(c.properties.review)")
	}
	query.WriteString(" ORDER BY c.properties.place DESC")
	documents, err := db.queryDocuments(ctx, AdminPartition, query.String(), parameters, limit+1)
	if err != nil {
		return nil, "", err
	}
	for _, document := range documents {
		if len(records) == limit {
			return records, records[limit-1].sortKey(), nil
		}
		change, err := readChange(document)
		if err != nil {
			return nil, "", err
		}
		var record AdminRecord
		if change.Kind == ElevationKind {
			record.Elevation, err = db.elevations.decode(document)
		} else {
			record.Operation, err = db.adminOperations.decode(document)
		}
		if err != nil {
			return nil, "", err
		}
		records = append(records, record)
	}
	return records, "", nil
}

func (r AdminRecord) sortKey() string {
	if r.Elevation != nil {
		return r.Elevation.Value.SortKey
	}
	return r.Operation.Value.SortKey
}
