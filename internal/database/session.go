package database

import (
	"strings"
	"time"
)

// sessionPartition begins the partition keys of sessions, in place of a subscription ID. Each session has a partition of its own.
const sessionPartition = "session:"

// SessionDocument is the session of an engineer who signed in to the portal. It contains no secret that works without the cookie of the
// engineer's browser: its ID is a digest of the cookie, and Sealed can be opened only with the cookie.
type SessionDocument struct {
	// Name is for display. ObjectID and TenantID identify the engineer.
	Name     string `json:"name"`
	ObjectID string `json:"objectId"`
	TenantID string `json:"tenantId"`
	// StartTime is when the engineer signed in, and LastSeen the time of a recent request. The session ends at ExpirationTime at the latest.
	StartTime      time.Time `json:"startTime"`
	LastSeen       time.Time `json:"lastSeen"`
	ExpirationTime time.Time `json:"expirationTime"`
	// Sealed are the tokens of the engineer, encrypted.
	Sealed []byte `json:"sealed,omitempty"`
}

// SessionKey returns the key of a session. id is a digest in hexadecimal form.
func SessionKey(id string) Key {
	return Key{SubscriptionID: sessionPartition + strings.ToLower(id), ResourceID: "/sessions/" + id}
}

// sessionTTL returns how long a session is kept after a write: until it expires. Each write stores its time as LastSeen, except for the end of
// the session, which is kept a little longer.
func sessionTTL(s *SessionDocument) time.Duration {
	return max(s.ExpirationTime.Sub(s.LastSeen), time.Second)
}
