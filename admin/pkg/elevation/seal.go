package elevation

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/jwt"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/filevalue"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

const (
	// sealType is the typ of the JWS, so that no other JWT of the region is taken for a seal (RFC 8725, section 3.11).
	sealType = "hcpmesh-elevation+jwt"
	// claimDigest is the claim with the digest of the document.
	claimDigest = "digest"
)

// Sealer signs the content of elevations, so that an elevation that admin did not write permits nothing: whoever can write to the
// database cannot write an approval. An earlier state of the same elevation has a valid seal. It is safe for concurrent use.
type Sealer struct {
	current func() *sealingKeys
}

// sealingKeys is the content of a keyset.
type sealingKeys struct {
	signer   jwt.Signer
	verifier jwt.Verifier
}

// LoadSealer reads a Tink keyset (JWT_ES256) from a file, and follows changes of the file. The primary key signs; seals of all enabled
// keys are valid. If the changed file is not such a keyset, the previous one stays in use.
func LoadSealer(path string) (*Sealer, error) {
	value, err := filevalue.New(func() (*sealingKeys, error) {
		handle, err := keyfile.Read(path)
		if err != nil {
			return nil, err
		}
		return newSealingKeys(handle)
	}, path)
	if err != nil {
		return nil, err
	}
	return &Sealer{value.Current}, nil
}

// NewSealer returns a Sealer with a new key, for tests.
func NewSealer() (*Sealer, error) {
	handle, err := keyset.NewHandle(jwt.ES256Template())
	if err != nil {
		return nil, err
	}
	keys, err := newSealingKeys(handle)
	return &Sealer{func() *sealingKeys { return keys }}, err
}

func newSealingKeys(handle *keyset.Handle) (*sealingKeys, error) {
	signer, err := jwt.NewSigner(handle)
	if err != nil {
		return nil, errors.New("the keyset has no enabled primary key that signs JSON Web Tokens")
	}
	public, err := handle.Public()
	if err != nil {
		return nil, errors.New("the keyset has keys without a public key")
	}
	verifier, err := jwt.NewVerifier(public)
	if err != nil {
		return nil, err
	}
	return &sealingKeys{signer: signer, verifier: verifier}, nil
}

// Seal sets the seal of an elevation after its last change.
func (s *Sealer) Seal(e *database.ElevationDocument) error {
	digest, err := digestOf(e)
	if err != nil {
		return err
	}
	typ := sealType
	raw, err := jwt.NewRawJWT(&jwt.RawJWTOptions{TypeHeader: &typ, JWTID: &e.ElevationID, WithoutExpiration: true, CustomClaims: map[string]any{claimDigest: digest}})
	if err != nil {
		return fmt.Errorf("sealing an elevation: %w", err)
	}
	if e.Seal, err = s.current().signer.SignAndEncode(raw); err != nil {
		return fmt.Errorf("sealing an elevation: %w", err)
	}
	return nil
}

// Verify returns an error unless an elevation has the content with which it was sealed.
func (s *Sealer) Verify(e *database.ElevationDocument) error {
	typ := sealType
	validator, err := jwt.NewValidator(&jwt.ValidatorOpts{ExpectedTypeHeader: &typ, AllowMissingExpiration: true})
	if err != nil {
		return err
	}
	verified, err := s.current().verifier.VerifyAndDecode(e.Seal, validator)
	if err != nil {
		return forged(e, err)
	}
	sealed, err := verified.StringClaim(claimDigest)
	if err != nil {
		return forged(e, err)
	}
	digest, err := digestOf(e)
	if err != nil {
		return err
	}
	if sealed != digest {
		return forged(e, errors.New("its content differs from what was sealed"))
	}
	return nil
}

// digestOf returns the digest of the content of an elevation without its seal.
func digestOf(e *database.ElevationDocument) (string, error) {
	content := *e
	content.Seal = ""
	text, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encoding an elevation: %w", err)
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:]), nil
}

func forged(e *database.ElevationDocument, cause error) error {
	return apierror.New(apierror.PermissionDenied, "The stored elevation %s was not written by admin. It permits nothing: request another one.", e.ElevationID).WithCause(cause)
}
