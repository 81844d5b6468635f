// Package credentialuse is how a management cluster says which break-glass credentials are used: an annotation on the
// HostedCluster, which Cluster Service reads back with the rest of its status. Whoever reads the audit log of a hosted API
// server keeps a Report and writes it there; Cluster Service, which knows the certificates that were issued by their
// fingerprints, joins each Use with who asked for it and why. A report is bounded and has nothing of a request but its verb
// and resource: no name, query, body, header or token gets in.
package credentialuse

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Annotation is where a HostedCluster carries its report.
const Annotation = "breakglass.hcpmesh.io/uses"

const (
	// Again is after what time the use of a credential that is known to be used is worth telling again.
	Again = time.Hour
	// Kept is how long a credential is reported after its last known use. No certificate of the control plane's signers lives
	// longer than 36 hours, so that it has ended by then.
	Kept = 48 * time.Hour
	// maxUses bounds a report; the credentials that were used last are kept.
	maxUses = 64
	// maxAddresses bounds the addresses that are told apart of one credential.
	maxAddresses = 8
	// maxText bounds a user's name and a request.
	maxText = 128
	// maxEncoded bounds what is read.
	maxEncoded = 64 << 10
)

// Use is what is known of one certificate's use.
type Use struct {
	// Fingerprint is the SHA-256 of the certificate (DER), in lower-case hex.
	Fingerprint string `json:"fingerprint"`
	// User is whom the API server took its holder for.
	User string `json:"user"`
	// First is when it was first seen, Last when it was used again, which is known to the hour (see Again).
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	// Addresses are where it was used from, in the order in which they were seen first.
	Addresses []string `json:"addresses,omitempty"`
	// Request is the verb and resource of the first request, as in "list pods".
	Request string `json:"request,omitempty"`
}

// Class is the signer class of a break-glass credential's user; empty for anybody else.
func Class(user string) string {
	for _, class := range []string{"customer-break-glass", "sre-break-glass"} {
		if strings.HasPrefix(user, "system:"+class+":") {
			return class
		}
	}
	return ""
}

// valid says that a use may be what a writer of reports wrote.
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

// plain says that a text is short and printable ASCII.
func plain(text string) bool {
	return len(text) <= maxText && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// Report is the uses of the credentials of one cluster, by fingerprint.
type Report map[string]Use

// Note takes a use into a report and says whether it is news: of a credential or from an address that was not known, or
// after a while. What is no use is left out.
func (r Report) Note(u Use) (news bool) {
	u.First, u.Last = u.First.UTC(), u.Last.UTC()
	if !u.valid() {
		return false
	}
	known, is := r[u.Fingerprint]
	if !is {
		u.Addresses = slices.Clone(u.Addresses)
		r[u.Fingerprint] = u
		return true
	}
	if u.First.Before(known.First) {
		known.First, known.Request = u.First, u.Request
		news = true
	}
	if u.Last.Sub(known.Last) >= Again {
		news = true
	}
	if u.Last.After(known.Last) {
		known.Last = u.Last
	}
	for _, a := range u.Addresses {
		if len(known.Addresses) < maxAddresses && !slices.Contains(known.Addresses, a) {
			known.Addresses = append(slices.Clip(known.Addresses), a)
			news = true
		}
	}
	r[u.Fingerprint] = known
	return news
}

// Forget drops what is too old, and the oldest of too many.
func (r Report) Forget(now time.Time) {
	for i, u := range r.Uses() {
		if i >= maxUses || now.Sub(u.Last) > Kept {
			delete(r, u.Fingerprint)
		}
	}
}

// Uses are the uses of a report, the latest first.
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

// Encode is the annotation's value.
func (r Report) Encode() (string, error) {
	text, err := json.Marshal(r.Uses())
	if err != nil {
		return "", fmt.Errorf("encoding the uses of credentials: %w", err)
	}
	return string(text), nil
}

// Decode reads the annotation's value. It comes from outside: what is not a use is left out.
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
