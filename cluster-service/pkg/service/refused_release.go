package service

import (
	"errors"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/release"
	"github.com/hcpmesh/hcpmesh/internal/release/signature"
)

// unavailableSignatures is the time after which a caller should retry while the store of signatures does not respond.
const unavailableSignatures = 5 * time.Second

// refusedRelease returns the error for a version whose release is refused. The release may be accepted later if its signature could
// not be read.
func refusedRelease(r release.Refusal) error {
	var reason *signature.Error
	if errors.As(r.Reason, &reason) && reason.Unavailable {
		return apierror.New(apierror.Unavailable, "Release %s is not accepted yet: %s.", r.Version, r.Reason).WithRetryAfter(unavailableSignatures).WithCause(r.Reason)
	}
	return invalidVersion("Unsupported value: release %s is refused: %s", r.Version, r.Reason)
}
