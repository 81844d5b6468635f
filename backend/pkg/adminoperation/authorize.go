package adminoperation

import (
	"context"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/adminaction"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/intent"
)

// IntentVerifier verifies signed intents. *intent.Verifier implements it.
type IntentVerifier interface {
	Verify(ctx context.Context, signed string) (*intent.Intent, error)
}

// authorize returns an error unless an engineer's signed intent authorizes an attempt to execute the operation now: the intent
// is authentic, is for this operation, has not ended, and its elevation is still active. It is called before every attempt.
//
// The returned intent is authentic even if there is an error. It is nil if nobody can be held responsible for the document.
func (e *Executor) authorize(ctx context.Context, o *database.AdminOperationDocument) (*intent.Intent, error) {
	if o.Intent == "" {
		return nil, intent.Missing()
	}
	asked, err := e.intents.Verify(ctx, o.Intent)
	if asked == nil {
		return nil, err
	}
	if mismatch := adminaction.Check(asked, o); mismatch != nil {
		// The intent is that of another action. Its engineer did not ask for this one.
		return nil, mismatch
	}
	if err == nil {
		err = e.checkElevation(ctx, asked)
	}
	if err != nil && o.Attempts > 1 && apierror.As(err).Reason == intent.ReasonExpired {
		err = apierror.New(apierror.PermissionDenied, "%s Before, %d attempts did not report their outcome: check whether one had its effect before you request the action again.",
			apierror.As(err).Message, o.Attempts-1).WithReason(intent.ReasonExpired)
	}
	return asked, err
}

// checkElevation returns an error unless the elevation of an intent is active.
func (e *Executor) checkElevation(ctx context.Context, asked *intent.Intent) error {
	item, err := e.db.Elevations().Find(ctx, database.ElevationKey(asked.Elevation.ID))
	if err != nil {
		return err
	}
	var elevation *database.ElevationDocument
	if item != nil && item.Removed == nil {
		elevation = &item.Value
	}
	return adminaction.CheckElevation(asked, elevation, time.Now())
}
