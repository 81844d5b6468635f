// Package credentialuse defines how a management cluster reports uses of break-glass credentials: in an annotation of the
// HostedCluster, which Cluster Service reads with its status. The reader of a hosted API server's audit log maintains a Report
// and writes the annotation. Cluster Service knows the issued certificates by fingerprint and joins each Use with the requester
// and the reason. A report is bounded. Of a request it contains only the verb and the resource, and never a name, query, body,
// header or token.
package credentialuse

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Annotation is the annotation of a HostedCluster with its report.
const Annotation = "breakglass.hcpmesh.io/uses"

// EngineerPrefix is the beginning of the user names of class sre-break-glass. The rest is the object ID of the engineer.
const EngineerPrefix = "system:sre-break-glass:"

const (
	// Again is the time after which another use of a reported credential is reported again.
	Again = time.Hour
	// Kept is the time for which a credential stays in the report after its last known use. Certificates of the control
	// plane's signers are valid for at most 36 hours, so they have expired by then.
	Kept = 48 * time.Hour
	// maxUses is the maximum number of credentials in a report. The ones that were used last are kept.
	maxUses = 64
	// maxAddresses is the maximum number of addresses of one credential.
	maxAddresses = 8
	// maxText is the maximum length of a user name and of a request.
	maxText = 128
	// maxEncoded is the maximum size of an annotation that is decoded.
	maxEncoded = 64 << 10
)

// Use describes the uses of one certificate.
type Use struct {
	// Fingerprint is the SHA-256 of the certificate (DER), in lower-case hex.
	Fingerprint string `json:"fingerprint"`
	// User is the user name that the API server authenticated.
	User string `json:"user"`
	// First is the time of the first use. Last is the time of the latest use, with the precision of Again.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Addresses are the clients' addresses in the order of their first use.
	Addresses []string `json:"addresses,omitempty"`
	// Request is the verb and resource of the first request, as in "list pods".
	Request string `json:"request,omitempty"`
}

// Class returns the signer class of a break-glass credential's user, and "" for all other users.
func Class(user string) string {
	for _, class := range []string{"customer-break-glass", "sre-break-glass"} {
		if strings.HasPrefix(user, "system:"+class+":") {
			return class
		}
	}
	return ""
}

// valid reports whether all fields of a use have valid values.
func (u *Use) valid() bool {
	if len(u.Fingerprint) != 64 || strings.Trim(u.Fingerprint, "0123456789abcdef") != "" {
		return false
	}
	for _, a := range u.Addresses {
		if _, err := netip.ParseAddr(a); err != nil {
			return false
		}
	}
	return Class(u.User) != "" && plain(u.User) && plain(u.Request) && len(u.Addresses) <= maxAddresses &&
		u.First.Year() > 2000 && u.Last.Year() < 3000 && !u.Last.Before(u.First)
}

// plain reports whether a text is printable ASCII of at most maxText bytes.
func plain(text string) bool {
	return len(text) <= maxText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// Report has the uses of one cluster's credentials by fingerprint.
type Report map[string]Use

// Note adds a use to the report. It returns true if the report must be written again: for a new credential, a new address, an
// earlier first use, or after the time Again. Invalid uses are ignored.
func (r Report) Note(u Use) (changed bool) {
	u.First, u.Last = u.First.UTC(), u.Last.UTC()
	if !u.valid() {
		return false
	}
	known, found := r[u.Fingerprint]
	if !found {
		u.Addresses = slices.Clone(u.Addresses)
		r[u.Fingerprint] = u
		return true
	}
	if u.First.Before(known.First) {
		known.First, known.Request = u.First, u.Request
		changed = true
	}
	if u.Last.Sub(known.Last) >= Again {
		changed = true
	}
	if u.Last.After(known.Last) {
		known.Last = u.Last
	}
	for _, a := range u.Addresses {
		if len(known.Addresses) < maxAddresses && !slices.Contains(known.Addresses, a) {
			known.Addresses = append(slices.Clip(known.Addresses), a)
			changed = true
		}
	}
	r[u.Fingerprint] = known
	return changed
}

// Forget removes uses that are older than Kept, and the oldest ones beyond the maximum number.
func (r Report) Forget(now time.Time) {
	for i, u := range r.Uses() {
		if i >= maxUses || now.Sub(u.Last) > Kept {
			delete(r, u.Fingerprint)
		}
	}
}

// Uses returns the uses of a report, latest first.
func (r Report) Uses() []Use {
	uses := make([]Use, 0, len(r))
	for _, u := range r {
		uses = append(uses, u)
	}
	slices.SortFunc(uses, func(a, b Use) int {
		if c := b.Last.Compare(a.Last); c != 0 {
			return c
		}
		return strings.Compare(a.Fingerprint, b.Fingerprint)
	})
	return uses
}

// Encode returns the annotation's value.
func (r Report) Encode() (string, error) {
	text, err := json.Marshal(r.Uses())
	if err != nil {
		return "", fmt.Errorf("encode the uses of credentials: %w", err)
	}
	return string(text), nil
}

// Decode reads the annotation's value. The value comes from outside, so invalid uses are ignored.
func Decode(text string) Report {
	report := Report{}
	if text == "" || len(text) > maxEncoded {
		return report
	}
	var uses []Use
	if json.Unmarshal([]byte(text), &uses) != nil {
		return report
	}
	for _, u := range uses[:min(len(uses), maxUses)] {
		report.Note(u)
	}
	return report
}
