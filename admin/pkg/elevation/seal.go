package elevation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tink-crypto/tink-go/v2/jwt"
	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/hcpmesh/hcpmesh/internal/apierror"
	"github.com/hcpmesh/hcpmesh/internal/database"
	"github.com/hcpmesh/hcpmesh/internal/disk"
	"github.com/hcpmesh/hcpmesh/internal/keyfile"
)

const (
	// sealType is the typ of the JWS, so that no other JWT of the region is taken for a seal (RFC 8725, section 3.11).
	sealType = "hcpmesh-elevation+jwt"
	// claimDigest is the claim with the digest of the document. claimRevision is the claim with the number of seals of the elevation; seals of
	// releases before revisions have none.
	claimDigest, claimRevision = "digest", "revision"
)

// Sealer signs the content of elevations, so that an elevation that admin did not write permits nothing: whoever can write to the
// database cannot write an approval. It remembers the latest revision of each elevation that may be open, so that whoever writes an earlier
// state with its valid seal does not open an elevation again. It is safe for concurrent use.
type Sealer struct {
	current func() *sealingKeys

	mu sync.Mutex
	// latest is the latest revision of each elevation that this process has verified, by ID.
	latest map[string]revision
}

// revision is the number of seals of an elevation, and when a Sealer learned it.
type revision struct {
	number int64
	seen   time.Time
}

// errSetBack is the cause of the refusal of an elevation that is in an earlier state than one that the process has verified.
var errSetBack = errors.New("a later revision of the elevation was verified before")

// sealingKeys is the content of a keyset.
type sealingKeys struct {
	signer   jwt.Signer
	verifier jwt.Verifier
}

// LoadSealer reads a Tink keyset (JWT_ES256) from a file, and follows changes of the file. The primary key signs; seals of all enabled
// keys are valid. If the changed file is not such a keyset, the previous one stays in use.
func LoadSealer(path string) (*Sealer, error) {
	value, err := disk.NewValue(func() (*sealingKeys, error) {
		handle, err := keyfile.Read(path)
		if err != nil {
			return nil, err
		}
		return newSealingKeys(handle)
	}, path)
	if err != nil {
		return nil, err
	}
	return &Sealer{current: value.Current, latest: map[string]revision{}}, nil
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

// Seal sets the seal of an elevation after its last change. Its revision is the next one after that of the seal that it replaces.
func (s *Sealer) Seal(e *database.ElevationDocument) error {
	digest, err := digestOf(e)
	if err != nil {
		return err
	}
	next := int64(1)
	if e.Seal != "" {
		before, err := s.decode(e)
		if err != nil {
			return err
		}
		next += before.revision
	}
	typ := sealType
	raw, err := jwt.NewRawJWT(&jwt.RawJWTOptions{TypeHeader: &typ, JWTID: &e.ElevationID, WithoutExpiration: true, CustomClaims: map[string]any{claimDigest: digest, claimRevision: next}})
	if err != nil {
		return fmt.Errorf("sealing an elevation: %w", err)
	}
	if e.Seal, err = s.current().signer.SignAndEncode(raw); err != nil {
		return fmt.Errorf("sealing an elevation: %w", err)
	}
	return nil
}

// Verify returns an error unless an elevation has the content with which it was sealed, and no later revision of it was verified before.
func (s *Sealer) Verify(e *database.ElevationDocument) error {
	sealed, err := s.decode(e)
	if err != nil {
		return err
	}
	digest, err := digestOf(e)
	if err != nil {
		return err
	}
	if sealed.digest != digest {
		return forged(e, errors.New("its content differs from what was sealed"))
	}
	if sealed.revision == 0 {
		return nil // a release before revisions sealed it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	latest, found := s.latest[e.ElevationID]
	switch {
	case sealed.revision < latest.number:
		return apierror.New(apierror.Conflict, "The stored elevation %s is in an earlier state than admin has seen. Try again. If the error stays, somebody has set it back, and it permits nothing: request another one.", e.ElevationID).WithCause(errSetBack)
	case !found:
		s.forgetClosed(now)
	}
	s.latest[e.ElevationID] = revision{number: sealed.revision, seen: now}
	return nil
}

// Stored remembers the revision of an elevation that the process has sealed and stored, so that it refuses the state before from now on.
func (s *Sealer) Stored(e *database.ElevationDocument) {
	_ = s.Verify(e) // another replica may have stored a later one since
}

// Retry is database.Retry for a decide that reads and verifies an elevation. It also repeats decide if this process has changed the elevation since
// decide read it. A state that stays earlier was set back, and its error is returned.
func Retry(ctx context.Context, decide func(ctx context.Context) error) error {
	var setBack error
	err := database.Retry(ctx, func(ctx context.Context) error {
		err := decide(ctx)
		if setBack = nil; errors.Is(err, errSetBack) {
			setBack, err = err, &database.WriteConflict{Kind: database.ElevationKind}
		}
		return err
	})
	return cmp.Or(setBack, err)
}

// forgetClosed removes the revisions of elevations that no state can open again. The caller holds mu.
func (s *Sealer) forgetClosed(now time.Time) {
	oldest := OldestOpen(now)
	for id, r := range s.latest {
		if r.seen.Before(oldest) {
			delete(s.latest, id)
		}
	}
}

// sealed is the content of a seal.
type sealed struct {
	digest   string
	revision int64
}

// decode returns the content of the seal of an elevation.
func (s *Sealer) decode(e *database.ElevationDocument) (sealed, error) {
	typ := sealType
	validator, err := jwt.NewValidator(&jwt.ValidatorOpts{ExpectedTypeHeader: &typ, AllowMissingExpiration: true})
	if err != nil {
		return sealed{}, err
	}
	verified, err := s.current().verifier.VerifyAndDecode(e.Seal, validator)
	if err != nil {
		return sealed{}, forged(e, err)
	}
	content := sealed{}
	if content.digest, err = verified.StringClaim(claimDigest); err != nil {
		return sealed{}, forged(e, err)
	}
	if verified.HasNumberClaim(claimRevision) {
		number, err := verified.NumberClaim(claimRevision)
		if err != nil {
			return sealed{}, forged(e, err)
		}
		content.revision = int64(number)
	}
	return content, nil
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
