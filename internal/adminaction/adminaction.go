// Package adminaction connects admin operations with the intents that authorize them. It translates an operation to the request
// of Cluster Service that executes it, binds an intent to the operation when admin signs it, and checks the two against each
// other before the backend executes the operation. admin and the backend use the same translation, so that the digest that
// admin signs is that of the request that Cluster Service receives.
package adminaction

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
)

// maxActorName and maxReason are the limits of Cluster Service, in bytes.
const (
	maxActorName = 256
	maxReason    = 1024
)

// ActorName returns the name of the engineer as Cluster Service records it.
func ActorName(o *database.AdminOperationDocument) string {
	return truncate(cmp.Or(o.Actor.Name, o.Actor.ObjectID), maxActorName)
}

// Justification returns the ticket and the reason as one text.
func Justification(o *database.AdminOperationDocument) string {
	text := o.Actor.Reason
	if o.Actor.Ticket != "" {
		text = o.Actor.Ticket + ": " + text
	}
	return truncate(text, maxReason)
}

// truncate returns at most limit bytes of a text. It does not split a character, because protobuf requires valid UTF-8.
func truncate(text string, limit int) string {
	for ; len(text) > limit; limit-- {
		if utf8.RuneStart(text[limit]) {
			return text[:limit]
		}
	}
	return text
}

// InvalidParameters returns the error for parameters that cannot be decoded.
func InvalidParameters(err error) error {
	return apierror.New(apierror.Invalid, "The parameters of the operation cannot be read.").WithCause(fmt.Errorf("decoding: %w", err))
}
