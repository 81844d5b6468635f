package intent

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tink-crypto/tink-go/v2/jwt"

	"github.com/hcpmesh/hcpmesh/api/wire"
	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/keycache"
)

// The reasons of the errors of Verify and of servers that require an intent.
const (
	// ReasonMissing: the call has no intent.
	ReasonMissing = "INTENT_MISSING"
	// ReasonInvalid: the intent is not one of the region's admin, or not for this action, target, parameters or call.
	ReasonInvalid = "INTENT_INVALID"
	// ReasonExpired: the intent, or the elevation that it was accepted with, has ended.
	ReasonExpired = "INTENT_EXPIRED"
	// ReasonUnverifiable: the intent cannot be verified now, because the keys cannot be fetched.
	ReasonUnverifiable = "INTENT_UNVERIFIABLE"
)

const (
	// maxSize limits the size of a signed intent in bytes. Reasons and names have limits of their own.
	maxSize = 16 << 10
	// maxKeys limits the number of published keys.
	maxKeys = 20
	// leeway is the permitted difference between the clocks of issuer and verifier for the time of issue. The end of an
	// intent has none.
	leeway = time.Minute
	// algorithm is the only signature algorithm.
	algorithm = "ES256"
)

// VerifierOptions configure which intents a Verifier accepts.
type VerifierOptions struct {
	// Issuer and Audience must be those of the Signer.
	Issuer, Audience string
	// KeysURL is the URL of the signer's KeySet. Client fetches it and must verify the server's identity.
	KeysURL string
	Client  *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Verifier verifies signed intents with the public keys of their issuer. It is safe for concurrent use.
type Verifier struct {
	issuer, audience string
	now              func() time.Time
	// find returns the current keys, and whether a key with an ID is one of them. The error is that they are unknown now.
	find func(ctx context.Context, id string) (known *keys, found bool, err error)
	run  func(ctx context.Context)
}

// keys are public keys of an issuer.
type keys struct {
	verifier jwt.Verifier
	ids      map[string]bool
}

// NewVerifier returns a Verifier with the keys that the issuer publishes. Its Run method keeps the keys fresh; without it they are fetched when they
// are needed.
func NewVerifier(options VerifierOptions) *Verifier {
	if options.Now == nil {
		options.Now = time.Now
	}
	cache := keycache.New(func(ctx context.Context) (*keys, error) {
		content, err := keycache.Get(ctx, options.Client, options.KeysURL)
		if err != nil {
			return nil, err
		}
		return usableKeys(content)
	}, options.Now)
	return &Verifier{issuer: options.Issuer, audience: options.Audience, now: options.Now, run: cache.Run, find: func(ctx context.Context, id string) (*keys, bool, error) {
		known, found, err := cache.Find(ctx, func(k *keys) bool { return k.ids[id] })
		if err == nil && found {
			// Keys may have been withdrawn since they were fetched.
			err = cache.Ready()
		}
		return known, found, err
	}}
}

// Run fetches the keys periodically until ctx ends, if the Verifier is of NewVerifier.
func (v *Verifier) Run(ctx context.Context) { v.run(ctx) }

// Verify returns the content of a signed intent. If the intent is authentic but has ended, it returns the content and an error
// with ReasonExpired. The kind of an error is PermissionDenied, or Unavailable if the keys cannot be fetched.
func (v *Verifier) Verify(ctx context.Context, signed string) (*Intent, error) {
	id, err := keyID(signed)
	if err != nil {
		return nil, invalid(err)
	}
	known, found, err := v.find(ctx, id)
	switch {
	case err != nil:
		return nil, apierror.New(apierror.Unavailable, "The engineer's signed intent cannot be verified now, because admin's public keys cannot be fetched.").
			WithReason(ReasonUnverifiable).WithCause(err)
	case !found:
		return nil, invalid(errors.New("its key is not one of admin's public keys"))
	}
	now := v.now()
	content, err := v.decode(known, signed, now)
	if err == nil {
		i, err := parse(content, now)
		if err != nil {
			return nil, invalid(err)
		}
		return i, nil
	}
	if !jwt.IsExpirationErr(err) {
		return nil, invalid(errors.New("the signature, the issuer, the audience or a time is wrong"))
	}
	// Verified at its own time of expiry, less a second, the intent shows who asked.
	at, err := expiry(signed)
	if err != nil {
		return nil, invalid(err)
	}
	if content, err = v.decode(known, signed, at.Add(-time.Second)); err != nil {
		return nil, invalid(errors.New("the signature, the issuer or the audience is wrong"))
	}
	i, err := parse(content, now)
	if err != nil {
		return nil, invalid(err)
	}
	return i, Expired(i)
}

// Expired returns the error for an intent that has ended.
func Expired(i *Intent) error {
	return apierror.New(apierror.PermissionDenied, "The engineer's request ended at %s, before its execution began. Request the action again.", i.ExpiresAt.UTC().Format(time.RFC3339)).
		WithReason(ReasonExpired)
}

// Missing returns the error for an action that has no signed intent.
func Missing() error {
	return apierror.New(apierror.PermissionDenied, "This needs the request of an engineer, signed by admin.").WithReason(ReasonMissing)
}

// Mismatch returns the error for an intent that is not for the action or call that it came with. what names the difference.
func Mismatch(what string) error { return invalid(fmt.Errorf("it is for another %s", what)) }

// invalid returns the error for an intent that is not accepted. cause must not contain a part of the intent.
func invalid(cause error) error {
	return apierror.New(apierror.PermissionDenied, "The engineer's signed intent is not accepted: %s.", cause).WithReason(ReasonInvalid).WithCause(cause)
}

// decode verifies the signature, the type, the issuer, the audience and the expiry at a time, and returns the claims as JSON.
func (v *Verifier) decode(known *keys, signed string, now time.Time) ([]byte, error) {
	typ := typeHeader
	validator, err := jwt.NewValidator(&jwt.ValidatorOpts{ExpectedTypeHeader: &typ, ExpectedIssuer: &v.issuer, ExpectedAudience: &v.audience, FixedNow: now})
	if err != nil {
		return nil, err
	}
	verified, err := known.verifier.VerifyAndDecode(signed, validator)
	if err != nil {
		return nil, err
	}
	return verified.JSONPayload()
}

// claims is the JSON form of an Intent.
type claims struct {
	OperationID string   `json:"jti"`
	ObjectID    string   `json:"sub"`
	TenantID    string   `json:"tid"`
	Name        string   `json:"name"`
	Roles       []string `json:"roles"`
	Elevation   struct {
		ID      string `json:"id"`
		Role    string `json:"role"`
		Expires int64  `json:"exp"`
		// Emergency is absent in intents of earlier releases.
		Emergency bool `json:"emergency"`
	} `json:"elevation"`
	Reason     string `json:"reason"`
	Ticket     string `json:"ticket"`
	Action     string `json:"action"`
	Target     Target `json:"target"`
	Parameters string `json:"parameters"`
	Call       *Call  `json:"call"`
	IssuedAt   int64  `json:"iat"`
	ExpiresAt  int64  `json:"exp"`
}

// parse returns the intent with these verified claims.
func parse(content []byte, now time.Time) (*Intent, error) {
	var c claims
	if err := json.Unmarshal(content, &c); err != nil {
		return nil, errors.New("its claims cannot be read")
	}
	i := &Intent{OperationID: c.OperationID, ObjectID: c.ObjectID, TenantID: c.TenantID, Name: c.Name, Roles: c.Roles,
		Elevation: Elevation{ID: c.Elevation.ID, Role: c.Elevation.Role, ExpiresAt: time.Unix(c.Elevation.Expires, 0).UTC(), Emergency: c.Elevation.Emergency},
		Reason:    c.Reason, Ticket: c.Ticket, Action: c.Action, Target: c.Target, Parameters: c.Parameters, Call: c.Call,
		IssuedAt: time.Unix(c.IssuedAt, 0).UTC(), ExpiresAt: time.Unix(c.ExpiresAt, 0).UTC()}
	if i.IssuedAt.After(now.Add(leeway)) {
		return nil, errors.New("it was issued in the future")
	}
	return i, i.validate()
}

// keyID returns the ID of the key that a JWS names.
func keyID(signed string) (string, error) {
	if len(signed) > maxSize {
		return "", errors.New("it is too large")
	}
	var header struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}
	if err := decodePart(signed, 0, &header); err != nil || header.Algorithm != algorithm || header.KeyID == "" {
		return "", fmt.Errorf("it is not a JWS with %s and a key ID", algorithm)
	}
	return header.KeyID, nil
}

// expiry returns the time of expiry in a JWS whose signature is not verified.
func expiry(signed string) (time.Time, error) {
	var payload struct {
		ExpiresAt int64 `json:"exp"`
	}
	if err := decodePart(signed, 1, &payload); err != nil {
		return time.Time{}, errors.New("its claims cannot be read")
	}
	return time.Unix(payload.ExpiresAt, 0), nil
}

// decodePart decodes the header (0) or the payload (1) of a compact JWS.
func decodePart(signed string, part int, into any) error {
	parts := strings.Split(signed, ".")
	if len(parts) != 3 {
		return errors.New("it does not have three parts")
	}
	content, err := base64.RawURLEncoding.DecodeString(parts[part])
	if err != nil {
		return err
	}
	return json.Unmarshal(content, into)
}

// usableKeys returns the keys of a JSON Web Key Set that admin publishes, without those that cannot be used: a later release may publish keys of
// another algorithm, and one of them hides no other (RFC 7517, section 5). It returns an error that names them if the set is malformed or has no usable key.
func usableKeys(content []byte) (*keys, error) {
	type set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	var published, usable set
	if err := json.Unmarshal(content, &published); err != nil {
		return nil, errors.New("the published keys are not a JSON Web Key Set")
	}
	if len(published.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are published, want 1 to %d", len(published.Keys), maxKeys)
	}
	parse := func(some ...json.RawMessage) (*keys, error) {
		content, err := json.Marshal(set{some})
		if err != nil {
			return nil, err
		}
		return parseKeys(content)
	}
	var ignored wire.Ignored
	wire.Elements("keys", "kid", slices.All(published.Keys), func(_ int, key json.RawMessage) error {
		_, err := parse(key)
		if err == nil {
			usable.Keys = append(usable.Keys, key)
		}
		return err
	}, ignored.Add)
	if len(usable.Keys) == 0 {
		return nil, errors.Join(errors.New("no usable key is published"), ignored.Err())
	}
	return parse(usable.Keys...)
}

// parseKeys returns the keys of a JSON Web Key Set. It refuses the whole set for a key that cannot be used: the process has made it from a keyset of its
// own, or an operator has.
func parseKeys(content []byte) (*keys, error) {
	var set struct {
		Keys []struct {
			ID        string `json:"kid"`
			Algorithm string `json:"alg"`
		} `json:"keys"`
	}
	if err := json.Unmarshal(content, &set); err != nil {
		return nil, errors.New("the published keys are not a JSON Web Key Set")
	}
	if len(set.Keys) == 0 || len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("%d keys are published, want 1 to %d", len(set.Keys), maxKeys)
	}
	k := &keys{ids: map[string]bool{}}
	for _, key := range set.Keys {
		if key.ID == "" || key.Algorithm != algorithm {
			return nil, fmt.Errorf("a published key has no ID or is not for %s", algorithm)
		}
		k.ids[key.ID] = true
	}
	handle, err := jwt.JWKSetToPublicKeysetHandle(content)
	if err != nil {
		return nil, fmt.Errorf("reading the published keys: %w", err)
	}
	if k.verifier, err = jwt.NewVerifier(handle); err != nil {
		return nil, fmt.Errorf("reading the published keys: %w", err)
	}
	return k, nil
}
