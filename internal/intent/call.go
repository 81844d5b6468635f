package intent

import (
	"cmp"
	"context"
	"errors"
)

// CarriesIntent implements mesh.IntentVerifier.
func (v *Verifier) CarriesIntent(ctx context.Context) bool {
	signed, ok := OfIncomingContext(ctx)
	return signed != "" || !ok
}

// VerifyIntent implements mesh.IntentVerifier: it verifies that the call carries an intent for exactly this method and request.
// engineer is empty for an intent of another call, because its engineer did not ask for this one.
func (v *Verifier) VerifyIntent(ctx context.Context, method string, request Message) (verified context.Context, engineer string, err error) {
	signed, ok := OfIncomingContext(ctx)
	switch {
	case !ok:
		return ctx, "", invalid(errors.New("the call has several"))
	case signed == "":
		return ctx, "", Missing()
	}
	asked, err := v.Verify(ctx, signed)
	switch {
	case asked == nil:
		return ctx, "", err
	case !asked.AllowsCall(method, request):
		return ctx, "", Mismatch("call")
	case err != nil:
		return ctx, asked.Engineer(), err
	}
	return NewContext(ctx, asked), asked.Engineer(), nil
}

// Engineer returns the name of the engineer, or the object ID if there is no name.
func (i *Intent) Engineer() string { return cmp.Or(i.Name, i.ObjectID) }
