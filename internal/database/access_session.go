package database

import (
	"context"
	"fmt"
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

// accessSessionPartition is the prefix of partition keys of the container AccessSessions. The rest is the UID of the cluster.
const accessSessionPartition = "cluster:"

// AccessSessionDocument is the access of one engineer to one cluster through the session gateway. Admin creates it, the gateway makes it
// ready, and both end it. It authorizes nothing by itself: the gateway also requires the credential with its ID in Cluster Service. Its
// certificate names the engineer.
type AccessSessionDocument struct {
	// SessionID is also the ID of the admin operation and of the credential.
	SessionID  string `json:"sessionId"`
	ClusterUID string `json:"clusterUid"`
	ResourceID string `json:"resourceId"`
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
	// ReadyTime, ExpirationTime and CertificateFingerprint are set with the state Ready.
	ReadyTime              *time.Time `json:"readyTime,omitempty"`
	ExpirationTime         *time.Time `json:"expirationTime,omitempty"`
	CertificateFingerprint string     `json:"certificateFingerprint,omitempty"`
	// EndTime, EndedBy and EndReason are set with the state Ended. EndedBy is a person, or the component that ended it.
	EndTime   *time.Time `json:"endTime,omitempty"`
	EndedBy   string     `json:"endedBy,omitempty"`
	EndReason string     `json:"endReason,omitempty"`
}

// End ends the session and removes its keys. It reports whether it changed the session.
func (s *AccessSessionDocument) End(by, reason string, now time.Time) (changed bool) {
	if s.State == AccessSessionEnded {
		return false
	}
	s.State, s.EndTime, s.EndedBy, s.EndReason, s.SealedKeys = AccessSessionEnded, &now, by, reason, nil
	return true
}

// Deadline returns when the session ends unless it is ended before: when its request or its certificate expires, and with its elevation.
func (s *AccessSessionDocument) Deadline() time.Time {
	deadline := s.ElevationExpirationTime
	expiration := &s.RequestExpirationTime
	if s.ExpirationTime != nil {
		expiration = s.ExpirationTime
	}
	if expiration.Before(deadline) {
		deadline = *expiration
	}
	return deadline
}

// KeyPurpose returns the purpose for which the private key of a session is sealed.
func (s *AccessSessionDocument) KeyPurpose() string {
	return strings.Join([]string{"access-session", s.SessionID, s.ClusterUID, s.Owner.ObjectID}, "/")
}

// AccessSessionKey returns the key of an access session.
func AccessSessionKey(clusterUID, id string) Key {
	return Key{SubscriptionID: accessSessionPartition + strings.ToLower(clusterUID), ResourceID: "/access-sessions/" + id}
}

// AccessSessionFilter selects access sessions. An empty field selects all.
type AccessSessionFilter struct {
	// ID and ClusterUID are those of a session, ElevationID is that of its owner.
	ID, ClusterUID, ElevationID string
	// OpenOnly selects sessions that are not ended.
	OpenOnly bool
}

// EachAccessSession calls each for the access sessions that a filter selects, in no order. Without a cluster, it queries all partitions: use
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
	if filter.OpenOnly {
		query += " AND NOT IS_DEFINED(c.properties.endTime)"
	}
	partition := azcosmos.NewPartitionKey()
	if filter.ClusterUID != "" {
		partition = azcosmos.NewPartitionKeyString(accessSessionPartition + strings.ToLower(filter.ClusterUID))
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
