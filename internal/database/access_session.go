package database

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// AccessSessionState is the stored state of an access session.
type AccessSessionState string

// The states. A session is created in the state Requested. Ended is final.
const (
	AccessSessionRequested AccessSessionState = "Requested"
	AccessSessionReady     AccessSessionState = "Ready"
	AccessSessionEnded     AccessSessionState = "Ended"
)

// accessSessionPartition is the prefix of partition keys of the container AccessSessions for clusters, and accessShardPartition that for management
// clusters. The rest is the UID of the cluster, or the name of the provision shard, or service-cluster.
const (
	accessSessionPartition = "cluster:"
	accessShardPartition   = "shard:"
)

// AccessSessionDocument is the access of one engineer to one cluster, to one management cluster, or to the service cluster, through the session gateway.
// Admin creates it, the gateway makes it ready and adds its objects, and admin, the backend and the gateway end it. It authorizes nothing by itself. For a cluster, the gateway
// also requires the credential with its ID in Cluster Service, whose certificate names the engineer. For the others, a program in the cluster verifies the
// Intent.
type AccessSessionDocument struct {
	// SessionID is also the ID of the admin operation, and of the credential.
	SessionID string `json:"sessionId"`
	// ClusterUID and ResourceID identify the cluster. Shard is the provision shard of the management cluster, or service-cluster; empty for a cluster.
	ClusterUID string `json:"clusterUid,omitempty"`
	ResourceID string `json:"resourceId,omitempty"`
	Shard      string `json:"shard,omitempty"`
	Mode       string `json:"mode"`
	// Owner is the engineer, with the elevation, the reason and the ticket.
	Owner     AdminActor         `json:"owner"`
	Emergency bool               `json:"emergency,omitempty"`
	State     AccessSessionState `json:"state"`
	// RequestTime is when it was requested. It ends unless its certificate is issued before RequestExpirationTime.
	RequestTime           time.Time `json:"requestTime"`
	RequestExpirationTime time.Time `json:"requestExpirationTime"`
	// ElevationExpirationTime is when the elevation ends unless it is ended before.
	ElevationExpirationTime time.Time `json:"elevationExpirationTime"`
	// SealedKeys has the private key, sealed for the gateway and bound to the session. A request that was repeated before its operation was
	// stored has several, and the certificate is for one of them. They are removed at the end of the session.
	SealedKeys [][]byte `json:"sealedKeys,omitempty"`
	// Intent and Parameters are those of the operation of a session for a management cluster or for the service cluster: the signed intent, and what it has a
	// digest of. The backend sets them when it executes the operation. The end of the session removes them.
	Intent     string          `json:"intent,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// ReadyTime, ExpirationTime and CertificateFingerprint are set with the state Ready.
	ReadyTime              *time.Time `json:"readyTime,omitempty"`
	ExpirationTime         *time.Time `json:"expirationTime,omitempty"`
	CertificateFingerprint string     `json:"certificateFingerprint,omitempty"`
	// EndTime, EndedBy and EndReason are set with the state Ended. EndedBy is a person, or the component that ended it.
	EndTime   *time.Time `json:"endTime,omitempty"`
	EndedBy   string     `json:"endedBy,omitempty"`
	EndReason string     `json:"endReason,omitempty"`
	// Objects are the requests of the session that give access, with the outcomes. The gateway adds one before it forwards the request.
	Objects []AccessObject `json:"objects,omitempty"`
	// Unresolved is set while one of Objects has no outcome.
	Unresolved bool `json:"unresolved,omitempty"`
}

// MaxAccessObjects is the number of Objects that a session may have.
const MaxAccessObjects = 100

// AccessOutcome states whether the object of a request may exist after the session.
type AccessOutcome string

// The outcomes. Removed means that the object does not exist any more, and Left that it may exist after the session.
const (
	AccessRemoved AccessOutcome = "Removed"
	AccessLeft    AccessOutcome = "Left"
)

// AccessObject is a request of a session that creates or changes an object that gives access, for example a binding.
type AccessObject struct {
	// Request is the ID of the request in the audits, and of its recording.
	Request string `json:"request"`
	Verb    string `json:"verb"`
	// Kind is the resource with its group, for example rolebindings.rbac.authorization.k8s.io.
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Time      time.Time `json:"time"`
	// Outcome is empty until the gateway has it. Reason is why the object was left, for people.
	Outcome AccessOutcome `json:"outcome,omitempty"`
	Reason  string        `json:"reason,omitempty"`
}

// SetObject adds an object, or replaces the one of the same request. An object that was removed stays so.
func (s *AccessSessionDocument) SetObject(object AccessObject) {
	defer s.noteUnresolved()
	for i := range s.Objects {
		if known := &s.Objects[i]; known.Request == object.Request {
			if known.Outcome != AccessRemoved {
				*known = object
			}
			return
		}
	}
	s.Objects = append(s.Objects, object)
}

// RemoveObject removes the object of a request that had no effect.
func (s *AccessSessionDocument) RemoveObject(request string) {
	s.Objects = slices.DeleteFunc(s.Objects, func(o AccessObject) bool { return o.Request == request })
	s.noteUnresolved()
}

func (s *AccessSessionDocument) noteUnresolved() {
	s.Unresolved = slices.ContainsFunc(s.Objects, func(o AccessObject) bool { return o.Outcome == "" })
}

// End ends the session and removes its keys and its intent. It reports whether it changed the session.
func (s *AccessSessionDocument) End(by, reason string, now time.Time) (changed bool) {
	if s.State == AccessSessionEnded {
		return false
	}
	s.State, s.EndTime, s.EndedBy, s.EndReason, s.SealedKeys, s.Intent, s.Parameters = AccessSessionEnded, &now, by, reason, nil, "", nil
	return true
}

// Deadline returns when the session ends unless it is ended before: when its request or its certificate expires, and with its elevation.
func (s *AccessSessionDocument) Deadline() time.Time {
	if s.ExpirationTime != nil {
		return s.DeadlineOf(*s.ExpirationTime)
	}
	return s.DeadlineOf(s.RequestExpirationTime)
}

// DeadlineOf returns when the session ends if its credential expires at a time.
func (s *AccessSessionDocument) DeadlineOf(expiration time.Time) time.Time {
	if s.ElevationExpirationTime.Before(expiration) {
		return s.ElevationExpirationTime
	}
	return expiration
}

// KeyPurpose returns the purpose for which the private key of a session is sealed.
func (s *AccessSessionDocument) KeyPurpose() string {
	return strings.Join([]string{"access-session", s.SessionID, s.ClusterUID, s.Owner.ObjectID}, "/")
}

// AccessSessionKey returns the key of an access session for a cluster.
func AccessSessionKey(clusterUID, id string) Key {
	return (&AccessSessionDocument{ClusterUID: clusterUID, SessionID: id}).Key()
}

// Key returns the key of the session.
func (s *AccessSessionDocument) Key() Key {
	return Key{SubscriptionID: accessPartition(s.ClusterUID, s.Shard), ResourceID: "/access-sessions/" + s.SessionID}
}

// accessPartition returns the partition key of what belongs to a cluster, or to a management cluster if shard is not empty.
func accessPartition(clusterUID, shard string) string {
	if shard != "" {
		return accessShardPartition + shard
	}
	return accessSessionPartition + strings.ToLower(clusterUID)
}

// AccessSessionFilter selects access sessions. An empty field selects all.
type AccessSessionFilter struct {
	// ID, ClusterUID and Shard are those of a session, ElevationID is that of its owner. At most one of ClusterUID and Shard is set.
	ID, ClusterUID, Shard, ElevationID string
	// OpenOnly selects sessions that are not ended, and with OrUnresolved also those of which an object has no outcome.
	OpenOnly, OrUnresolved bool
}

// EachAccessSession calls each for the access sessions that a filter selects, in no order. Without a cluster or a shard, it queries all partitions: use
// it at startup and for requests of people. An error of type *UnreadableError means that some documents were skipped.
func (db *DB) EachAccessSession(ctx context.Context, filter AccessSessionFilter, each func(*Item[AccessSessionDocument]) error) error {
	query, parameters := "SELECT * FROM c WHERE c.kind = @kind AND NOT IS_DEFINED(c.deletionTimestamp)", []azcosmos.QueryParameter{{Name: "@kind", Value: string(AccessSessionKind)}}
	add := func(condition, name, value string) {
		if value != "" {
			query += " AND " + condition
			parameters = append(parameters, azcosmos.QueryParameter{Name: name, Value: value})
		}
	}
	add("c.properties.sessionId = @session", "@session", filter.ID)
	add("c.properties.owner.elevationId = @elevation", "@elevation", filter.ElevationID)
	switch {
	case filter.OpenOnly && filter.OrUnresolved:
		query += " AND (NOT IS_DEFINED(c.properties.endTime) OR c.properties.unresolved = true)"
	case filter.OpenOnly:
		query += " AND NOT IS_DEFINED(c.properties.endTime)"
	}
	partition := azcosmos.NewPartitionKey()
	if filter.ClusterUID != "" || filter.Shard != "" {
		partition = azcosmos.NewPartitionKeyString(accessPartition(filter.ClusterUID, filter.Shard))
	}
	var unreadable UnreadableError
	return unreadable.orElse(db.pagesOf(ctx, func(c *client) *azcosmos.ContainerClient { return c.accessSessions }, partition, query, parameters, func(document []byte) error {
		item, err := db.accessSessions.decode(document)
		if err != nil {
			unreadable.note(err)
			return nil
		}
		return each(item)
	}))
}

// ChangeAccessSession changes an access session and commits the change. It calls change again, with what another writer wrote, after a
// lost race, and writes nothing if change returns false. It returns nil if the session does not exist.
func (db *DB) ChangeAccessSession(ctx context.Context, key Key, change func(*AccessSessionDocument) (changed bool, err error)) (*AccessSessionDocument, error) {
	var result *AccessSessionDocument
	err := Retry(ctx, func(ctx context.Context) error {
		result = nil
		item, err := db.accessSessions.Find(ctx, key)
		if err != nil || item == nil || item.Removed != nil {
			return err
		}
		changed, err := change(&item.Value)
		if err != nil {
			return err
		}
		result = &item.Value
		if !changed {
			return nil
		}
		batch := db.NewBatch(key.SubscriptionID)
		Replace(batch, item)
		return batch.Commit(ctx)
	})
	if err != nil {
		return nil, fmt.Errorf("changing the access session %s: %w", key.ResourceID, err)
	}
	return result, nil
}
