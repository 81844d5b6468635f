package intent

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tink-crypto/tink-go/v2/jwt"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

// typeHeader is the typ of the JWS, so that no other JWT of the region is taken for an intent (RFC 8725, section 3.11).
const typeHeader = "hcpmesh-intent+jwt"

// The names of the claims that RFC 7519 does not define.
const (
	claimTenant     = "tid"
	claimName       = "name"
	claimRoles      = "roles"
	claimElevation  = "elevation"
	claimReason     = "reason"
	claimTicket     = "ticket"
	claimAction     = "action"
	claimTarget     = "target"
	claimParameters = "parameters"
	claimCall       = "call"
)

// Signer signs intents. Each call uses the current file. It is safe for concurrent use.
type Signer struct {
	current          func() *signingKeys
	issuer, audience string
}

// signingKeys are the keys of a file.
type signingKeys struct {
	signer    jwt.Signer
	published []byte
	public    *keys
	ring      keyfile.Ring
}

// CreateKeys writes a keyset with one new key to a file, unless the file exists.
func CreateKeys(path string) error {
	if err := keyfile.Create(path, jwt.ES256Template()); err != nil {
		return fmt.Errorf("create intent keys: %w", err)
	}
	return nil
}

// LoadSigner reads the keyset of a Signer from a file. The primary key signs; all enabled keys are published, so that a key can
// be published before it signs. issuer names the signing workload and audience the region. The Signer follows changes of the file. If the
// changed file is not a keyset, the previous one stays in use.
func LoadSigner(path, issuer, audience string) (*Signer, error) {
	value, err := disk.NewValue(func() (*signingKeys, error) {
		handle, err := keyfile.Read(path)
		if err != nil {
			return nil, fmt.Errorf("read intent keys: %w", err)
		}
		k, err := newSigningKeys(handle)
		if err != nil {
			return nil, fmt.Errorf("read intent keys: %s: %w", path, err)
		}
		return k, nil
	}, path)
	if err != nil {
		return nil, err
	}
	return &Signer{current: value.Current, issuer: issuer, audience: audience}, nil
}

// NewSigner returns a Signer with a new key, for tests and tools. Nothing that it signs can be verified after its KeySet is
// lost.
func NewSigner(issuer, audience string) (*Signer, error) {
	handle, err := keyset.NewHandle(jwt.ES256Template())
	if err != nil {
		return nil, err
	}
	k, err := newSigningKeys(handle)
	if err != nil {
		return nil, err
	}
	return &Signer{current: func() *signingKeys { return k }, issuer: issuer, audience: audience}, nil
}

func newSigningKeys(handle *keyset.Handle) (*signingKeys, error) {
	signer, err := jwt.NewSigner(handle)
	if err != nil {
		return nil, errors.New("the keyset has no enabled primary key that signs JSON Web Tokens; its template must be JWT_ES256")
	}
	public, err := handle.Public()
	if err != nil {
		return nil, errors.New("the keyset has keys without a public key")
	}
	published, err := jwt.JWKSetFromPublicKeysetHandle(public)
	if err != nil {
		return nil, fmt.Errorf("the public keys cannot be published: %w", err)
	}
	known, err := parseKeys(published)
	if err != nil {
		return nil, err
	}
	return &signingKeys{signer: signer, published: published, public: known, ring: keyfile.RingOf(handle)}, nil
}

// Ring returns the IDs of the keys in use.
func (s *Signer) Ring() keyfile.Ring { return s.current().ring }

// Verifier returns a Verifier of the intents that the Signer has signed with keys that are in use.
func (s *Signer) Verifier() *Verifier {
	return &Verifier{issuer: s.issuer, audience: s.audience, now: time.Now, run: func(context.Context) {}, find: func(_ context.Context, id string) (*keys, bool, error) {
		known := s.current().public
		return known, known.ids[id], nil
	}}
}

// Primary reports whether the primary key has signed an intent. The intent is not verified.
func (s *Signer) Primary(signed string) bool {
	id, err := keyID(signed)
	return err == nil && id == keyName(s.Ring().Primary)
}

// KeySet returns the JSON Web Key Set of the public keys.
func (s *Signer) KeySet() []byte { return s.current().published }

// Sign returns the compact JWS of an intent.
func (s *Signer) Sign(i *Intent) (string, error) {
	if err := i.validate(); err != nil {
		return "", fmt.Errorf("signing an intent: %w", err)
	}
	typ, issued, expires := typeHeader, i.IssuedAt.Truncate(time.Second), i.ExpiresAt.Truncate(time.Second)
	custom := map[string]any{
		claimTenant: i.TenantID, claimName: i.Name, claimRoles: list(i.Roles), claimReason: i.Reason, claimTicket: i.Ticket, claimAction: i.Action,
		claimElevation:  map[string]any{"id": i.Elevation.ID, "role": i.Elevation.Role, "exp": i.Elevation.ExpiresAt.Unix(), "emergency": i.Elevation.Emergency},
		claimTarget:     map[string]any{"kind": i.Target.Kind, "id": i.Target.ID, "resourceId": i.Target.ResourceID, "clusterUid": i.Target.ClusterUID},
		claimParameters: i.Parameters,
	}
	if i.Call != nil {
		custom[claimCall] = map[string]any{"method": i.Call.Method, "digest": i.Call.Digest}
	}
	raw, err := jwt.NewRawJWT(&jwt.RawJWTOptions{TypeHeader: &typ, Issuer: &s.issuer, Audience: &s.audience, Subject: &i.ObjectID, JWTID: &i.OperationID,
		IssuedAt: &issued, ExpiresAt: &expires, CustomClaims: custom})
	if err != nil {
		return "", fmt.Errorf("signing an intent: %w", err)
	}
	signed, err := s.current().signer.SignAndEncode(raw)
	if err == nil && len(signed) > maxSize {
		err = fmt.Errorf("it has %d bytes, more than %d", len(signed), maxSize)
	}
	if err != nil {
		return "", fmt.Errorf("signing an intent: %w", err)
	}
	return signed, nil
}

func list(values []string) []any {
	items := make([]any, len(values))
	for n, value := range values {
		items[n] = value
	}
	return items
}

// keyName returns the ID of a key as a JWS has it.
func keyName(id uint32) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, id))
}

// validate returns an error for an intent that names no operation, engineer, elevation or action, or that is valid for too
// long.
func (i *Intent) validate() error {
	switch {
	case i.OperationID == "" || i.ObjectID == "" || i.Action == "" || i.Elevation.ID == "" || i.Parameters == "":
		return errors.New("the operation, the engineer, the action, the elevation or the parameters are missing")
	case i.ExpiresAt.After(i.Elevation.ExpiresAt):
		return errors.New("it is valid longer than the elevation")
	case i.ExpiresAt.Sub(i.IssuedAt) > MaxValidity+time.Second:
		return fmt.Errorf("it is valid longer than %s", MaxValidity)
	}
	return nil
}
