package database

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// AdminPartition is the partition of what SREs do: it takes the place of a subscription id. What is in it belongs to one
// replica of the backend at a time, and is in one order.
const AdminPartition = "admin"

// AdminOperationState is how an SRE's operation stands.
type AdminOperationState string

// The states; the last two are terminal.
const (
	AdminAccepted  AdminOperationState = "Accepted"
	AdminRunning   AdminOperationState = "Running"
	AdminSucceeded AdminOperationState = "Succeeded"
	AdminFailed    AdminOperationState = "Failed"
)

// Terminal reports whether nothing more happens.
func (s AdminOperationState) Terminal() bool { return s == AdminSucceeded || s == AdminFailed }

// AdminActor is who did something, under which elevation, and why.
type AdminActor struct {
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId,omitempty"`
	// Role that was needed, and the elevation that gave it.
	Role        string `json:"role"`
	ElevationID string `json:"elevationId,omitempty"`
	Reason      string `json:"reason"`
	Ticket      string `json:"ticket,omitempty"`
}

// AdminTarget is what something was done to.
type AdminTarget struct {
	// Kind is a word, as in cluster or provisionShard; ID its uid or name.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// ResourceID is ARM's, where it has one; ClusterUID the cluster that it belongs to.
	ResourceID string `json:"resourceId,omitempty"`
	ClusterUID string `json:"clusterUid,omitempty"`
}

// AdminOperationDocument is something that an SRE asked for: written by admin, executed by the backend.
type AdminOperationDocument struct {
	OperationID string `json:"operationId"`
	// SortKey is its place among all that SREs did: the time of its acceptance, and the id.
	SortKey string `json:"place"`
	// Action is the name of the route that it came by, as in clusters.pause.
	Action string      `json:"action"`
	Target AdminTarget `json:"target"`
	// Parameters are the action's, never a secret.
	Parameters json.RawMessage     `json:"parameters,omitempty"`
	Actor      AdminActor          `json:"actor"`
	State      AdminOperationState `json:"state"`
	StartTime  time.Time           `json:"startTime"`
	// LastTransitionTime is when State last changed; EndTime is set with a terminal one.
	LastTransitionTime time.Time  `json:"lastTransitionTime"`
	EndTime            *time.Time `json:"endTime,omitempty"`
	// Attempts that the backend has begun.
	Attempts int32 `json:"attempts,omitempty"`
	// Result says what was done; Error why it was not.
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *OperationError `json:"error,omitempty"`
	RequestID string          `json:"requestId,omitempty"`
	// RequestDigest is of the request by which the caller may ask for the same operation again; empty for none.
	RequestDigest string `json:"requestDigest,omitempty"`
}

// End makes the operation terminal.
func (o *AdminOperationDocument) End(state AdminOperationState, failure *OperationError, now time.Time) {
	o.State, o.Error = state, failure
	o.LastTransitionTime, o.EndTime = now, &now
}

// ElevationDocument is what lets an SRE change something for a while.
type ElevationDocument struct {
	ElevationID string `json:"elevationId"`
	SortKey     string `json:"place"`
	// Actor's Role is the one that is given.
	Actor          AdminActor `json:"actor"`
	StartTime      time.Time  `json:"startTime"`
	ExpirationTime time.Time  `json:"expirationTime"`
	// EndTime is when it was ended before it expired, EndedBy by whom.
	EndTime *time.Time `json:"endTime,omitempty"`
	EndedBy string     `json:"endedBy,omitempty"`
}

// Active reports whether it gives its role at a time.
func (e *ElevationDocument) Active(now time.Time) bool {
	return e.EndTime == nil && now.Before(e.ExpirationTime)
}

// AdminSortKey is the place of something among all that SREs did.
func AdminSortKey(at time.Time, id string) string {
	return at.UTC().Format("2006-01-02T15:04:05.000000000Z") + "/" + id
}

// AdminOperationKey is the key of an SRE's operation.
func AdminOperationKey(id string) Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/operations/" + id}
}

// ElevationKey is the key of an elevation.
func ElevationKey(id string) Key {
	return Key{SubscriptionID: AdminPartition, ResourceID: "/admin/elevations/" + id}
}

// AdminFilter chooses what SREs did; an empty field chooses all.
type AdminFilter struct {
	// Kinds are AdminOperationKind, ElevationKind or both; empty means both.
	Kinds []Kind
	// ObjectID of who did it; ClusterUID, or the target's own id, of what it was done to.
	ObjectID, Target string
	State            AdminOperationState
	// ActiveOnly chooses operations that are not terminal, and elevations that nobody has ended.
	ActiveOnly bool
}

// AdminRecord is one thing that an SRE did: an operation or an elevation.
type AdminRecord struct {
	Operation *Item[AdminOperationDocument]
	Elevation *Item[ElevationDocument]
}

// AdminRecords returns a page of what SREs did, newest first. The continuation is empty on the last page.
func (db *DB) AdminRecords(ctx context.Context, filter AdminFilter, continuation string, limit int) (records []AdminRecord, next string, err error) {
	if limit < 1 || limit > MaxPageSize {
		return nil, "", fmt.Errorf("a page of %d items was asked for, not 1 to %d", limit, MaxPageSize)
	}
	if len(filter.Kinds) == 0 {
		filter.Kinds = []Kind{AdminOperationKind, ElevationKind}
	}
	query := strings.Builder{}
	query.WriteString("SELECT * FROM c WHERE ARRAY_CONTAINS(@kinds, c.kind)")
	parameters := []azcosmos.QueryParameter{{Name: "@kinds", Value: filter.Kinds}}
	add := func(condition, name string, value string) {
		if value != "" {
			query.WriteString(" AND " + condition)
			parameters = append(parameters, azcosmos.QueryParameter{Name: name, Value: value})
		}
	}
	add("c.properties.place < @before", "@before", continuation)
	add("c.properties.actor.objectId = @object", "@object", filter.ObjectID)
	add("(c.properties.target.clusterUid = @target OR c.properties.target.id = @target)", "@target", filter.Target)
	add("c.properties.state = @state", "@state", string(filter.State))
	if filter.ActiveOnly {
		query.WriteString(" AND NOT IS_DEFINED(c.properties.endTime)")
	}
	query.WriteString(" ORDER BY c.properties.place DESC")
	documents, err := db.queryResources(ctx, azcosmos.NewPartitionKeyString(AdminPartition), query.String(), parameters, limit+1)
	if err != nil {
		return nil, "", err
	}
	for _, document := range documents {
		if len(records) == limit {
			return records, records[limit-1].place(), nil
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

func (r AdminRecord) place() string {
	if r.Elevation != nil {
		return r.Elevation.Value.SortKey
	}
	return r.Operation.Value.SortKey
}
