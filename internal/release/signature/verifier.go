package signature

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"
)

const (
	// maxCached is the maximum number of digests with a cached message. All channels of OpenShift have fewer releases.
	maxCached = 4096
	// cachedFor is the time after which a cached message is verified again, because a key or a signature may have expired.
	cachedFor = time.Hour
	// requestTimeout is the maximum time for the messages of one digest.
	requestTimeout = 10 * time.Second
)

// Error is the refusal of a digest.
type Error struct {
	Digest string
	// TrustRoot has the fingerprints of the keys.
	TrustRoot string
	// Reason is why no message was accepted.
	Reason error
	// Unavailable reports that the store did not respond, so that a signature may exist.
	Unavailable bool
}

func (e *Error) Error() string {
	what := "has no valid signature"
	if e.Unavailable {
		what = "could not be verified"
	}
	return fmt.Sprintf("release image %s %s by the trust root with the keys %s: %v", e.Digest, what, e.TrustRoot, e.Reason)
}

func (e *Error) Unwrap() error { return e.Reason }

// errMissing is the reason for a digest without messages.
var errMissing = errors.New("there is no signature in the store")

// Verifier verifies digests. It caches a message for each verified digest. It is safe for concurrent use.
type Verifier struct {
	root  *TrustRoot
	store Store
	now   func() time.Time

	mu     sync.Mutex
	cached map[string]verified
}

// verified is a message that a key of the trust root has signed.
type verified struct {
	message   []byte
	reference Reference
	at        time.Time
}

// check returns an error if the message is for another version. The empty version means any.
func (c verified) check(version string) error {
	if version != "" && !c.reference.Names(version) {
		return fmt.Errorf("critical.identity.docker-reference of the signed content is %q, which is not version %s", c.reference, version)
	}
	return nil
}

// NewVerifier returns a verifier. A nil now means the system's clock.
func NewVerifier(root *TrustRoot, store Store, now func() time.Time) *Verifier {
	if now == nil {
		now = time.Now
	}
	return &Verifier{root: root, store: store, now: now, cached: map[string]verified{}}
}

// Verify returns nil if a key of the trust root has signed a digest, and an *Error otherwise. It asks the store only if there is no
// valid cached message.
func (v *Verifier) Verify(ctx context.Context, digest string) error { return v.verify(ctx, digest, "") }

// VerifyVersion is like Verify and also returns an *Error if all signed messages for the digest name other versions.
func (v *Verifier) VerifyVersion(ctx context.Context, digest, version string) error {
	return v.verify(ctx, digest, version)
}

func (v *Verifier) verify(ctx context.Context, digest, version string) error {
	if !digestPattern.MatchString(digest) {
		return v.refuse(digest, errors.New("it is not sha256 with 64 hexadecimal digits"))
	}
	v.mu.Lock()
	known, ok := v.cached[digest]
	v.mu.Unlock()
	if ok && known.check(version) == nil {
		if v.now().Sub(known.at) < cachedFor || v.add(digest, version, known.message) == nil {
			return nil
		}
	}
	return v.fetch(ctx, digest, version)
}

// fetch verifies the messages of the store until one is valid.
func (v *Verifier) fetch(ctx context.Context, digest, version string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	reason := errMissing
	for number := 1; number <= maxMessages; number++ {
		message, err := v.store.Message(ctx, digest, number)
		if err != nil {
			return &Error{Digest: digest, TrustRoot: v.root.String(), Unavailable: true,
				Reason: fmt.Errorf("read the signature from %s: %w", v.store, err)}
		}
		if message == nil {
			break
		}
		if reason = v.add(digest, version, message); reason == nil {
			return nil
		}
	}
	return v.refuse(digest, reason)
}

func (v *Verifier) refuse(digest string, reason error) error {
	return &Error{Digest: digest, TrustRoot: v.root.String(), Reason: reason}
}

// Add verifies a message and caches it for its digest. Callers add messages that they have stored, so that a restart does not need
// the store.
func (v *Verifier) Add(digest string, message []byte) error { return v.add(digest, "", message) }

// add verifies a message and that it names a version, and caches it for its digest. The empty version means any.
func (v *Verifier) add(digest, version string, message []byte) error {
	now := v.now()
	reference, err := v.root.Verify(digest, message, now)
	accepted := verified{message: message, reference: reference, at: now}
	if err == nil {
		if err := accepted.check(version); err != nil {
			return err
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.cached, digest)
	if err != nil {
		return err
	}
	for other := range v.cached {
		if len(v.cached) < maxCached {
			break
		}
		delete(v.cached, other)
	}
	v.cached[digest] = accepted
	return nil
}

// Messages returns the cached messages by digest.
func (v *Verifier) Messages() map[string][]byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	messages := map[string][]byte{}
	for digest, c := range maps.All(v.cached) {
		messages[digest] = c.message
	}
	return messages
}

// TrustRoot returns the fingerprints of the keys.
func (v *Verifier) TrustRoot() string { return v.root.String() }
