package portal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/database"
)

// The limits of a session.
const (
	// SessionIdle is how long a session lasts without a request, and SessionLifetime how long it lasts at most.
	SessionIdle     = 30 * time.Minute
	SessionLifetime = 8 * time.Hour
	// sessionTouch is how often the time of the last request is stored. A session may end this much earlier than after SessionIdle.
	sessionTouch = time.Minute
	// secretSize is the size of the secret in the cookie, in bytes.
	secretSize = 32
)

// The cookies. Browsers accept the prefix __Host- only from this host over HTTPS, for all paths.
const (
	sessionCookie = "__Host-hcpmesh-session"
	signInCookie  = "__Host-hcpmesh-sign-in"
)

// errNoSession means that the request has no session: no cookie, an unknown one, or one of a session that ended.
var errNoSession = errors.New("the request has no session")

// Tokens are the tokens of a person. They are stored only in sealed form.
type Tokens struct {
	Access  string `json:"access"`
	Refresh string `json:"refresh,omitempty"`
	// Expires is when Access expires.
	Expires time.Time `json:"expires"`
}

// session is the session of a request.
type session struct {
	database.SessionDocument
	tokens Tokens
	// held is a form that waits for a new sign-in; nil if there is none.
	held *heldForm

	secret []byte
	item   *database.Item[database.SessionDocument]
}

// Sessions stores the sessions in Cosmos DB, so that all replicas have them and a session that was ended is ended everywhere. The key of the
// tokens is derived from the secret in the cookie: who reads the database can neither use a session nor read its tokens.
type Sessions struct {
	Database *database.DB
	// Now is the clock.
	Now func() time.Time

	// ended is called with the ID of a session after its end.
	ended func(id string)
}

// sealedContent is what a session stores in sealed form.
type sealedContent struct {
	Tokens
	Held *heldForm `json:"held,omitempty"`
}

// create starts a session and returns it with a new secret. held may be nil.
func (s *Sessions) create(ctx context.Context, document database.SessionDocument, tokens Tokens, held *heldForm) (*session, error) {
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // never fails
	now := s.Now().UTC()
	document.StartTime, document.LastSeen, document.ExpirationTime = now, now, now.Add(SessionLifetime)
	created := &session{SessionDocument: document, tokens: tokens, held: held, secret: secret}
	if err := created.seal(); err != nil {
		return nil, err
	}
	key := database.SessionKey(sessionID(secret))
	batch := s.Database.NewBatch(key.SubscriptionID)
	created.item = database.Create(batch, s.Database.Sessions(), key, created.SessionDocument)
	return created, batch.Commit(ctx)
}

// find returns the session of a request. The error is errNoSession if there is none.
func (s *Sessions) find(ctx context.Context, r *http.Request) (*session, error) {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return nil, errNoSession
	}
	secret, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(secret) != secretSize {
		return nil, errNoSession
	}
	item, err := s.Database.Sessions().Find(ctx, database.SessionKey(sessionID(secret)))
	if err != nil {
		return nil, err
	}
	if item == nil || item.Removed != nil {
		return nil, errNoSession
	}
	found := &session{SessionDocument: item.Value, secret: secret, item: item}
	if !s.Now().Before(found.deadline()) {
		return nil, errNoSession
	}
	if err := found.open(); err != nil {
		return nil, errNoSession
	}
	return found, nil
}

// touch stores the time of the request, if the stored one is older than sessionTouch. Another request may be faster.
func (s *Sessions) touch(ctx context.Context, found *session) error {
	now := s.Now().UTC()
	if now.Sub(found.LastSeen) < sessionTouch {
		return nil
	}
	found.LastSeen = now
	return s.store(ctx, found)
}

// replaceTokens stores new tokens.
func (s *Sessions) replaceTokens(ctx context.Context, found *session, tokens Tokens) error {
	found.tokens, found.LastSeen = tokens, s.Now().UTC()
	if err := found.seal(); err != nil {
		return err
	}
	return s.store(ctx, found)
}

// hold stores a form that waits for a new sign-in. It replaces the previous one.
func (s *Sessions) hold(ctx context.Context, found *session, form heldForm) error {
	return database.Retry(ctx, func(ctx context.Context) error {
		item, err := s.Database.Sessions().Find(ctx, found.item.Key)
		if err != nil {
			return err
		}
		if item == nil || item.Removed != nil {
			return errNoSession
		}
		current := &session{SessionDocument: item.Value, secret: found.secret, item: item}
		if err := current.open(); err != nil {
			return errNoSession
		}
		current.held = &form
		if err := current.seal(); err != nil {
			return err
		}
		item.Value = current.SessionDocument
		batch := s.Database.NewBatch(item.Key.SubscriptionID)
		database.Replace(batch, item)
		return batch.Commit(ctx)
	})
}

// store replaces the document of a session. A conflict is no error: the session was ended, or another request has stored its own tokens,
// which are as good.
func (s *Sessions) store(ctx context.Context, found *session) error {
	found.item.Value = found.SessionDocument
	batch := s.Database.NewBatch(found.item.Key.SubscriptionID)
	database.Replace(batch, found.item)
	err := batch.Commit(ctx)
	if _, conflict := database.AsWriteConflict(err); conflict {
		return nil
	}
	return err
}

// end ends a session on all replicas and removes its tokens. It is idempotent.
func (s *Sessions) end(ctx context.Context, ended *session) error {
	err := database.Retry(ctx, func(ctx context.Context) error {
		item, err := s.Database.Sessions().Find(ctx, ended.item.Key)
		if err != nil || item == nil || item.Removed != nil {
			return err
		}
		item.Value.Sealed = nil
		batch := s.Database.NewBatch(item.Key.SubscriptionID)
		database.Remove(batch, item)
		return batch.Commit(ctx)
	})
	if err == nil {
		s.ended(sessionID(ended.secret))
	}
	return err
}

// sessionID returns the ID of the session with a secret.
func sessionID(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:])
}

// deadline returns when the session ends without a further request.
func (s *session) deadline() time.Time {
	if idle := s.LastSeen.Add(SessionIdle); idle.Before(s.ExpirationTime) {
		return idle
	}
	return s.ExpirationTime
}

// aead returns the cipher of the tokens of a session.
func (s *session) aead() (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, s.secret, nil, "hcpmesh portal: tokens of a session", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (s *session) seal() error {
	aead, err := s.aead()
	if err != nil {
		return err
	}
	content, err := json.Marshal(sealedContent{s.tokens, s.held})
	if err != nil {
		return err
	}
	s.Sealed = aead.Seal(nil, nil, content, []byte(sessionID(s.secret)))
	return nil
}

func (s *session) open() error {
	aead, err := s.aead()
	if err != nil {
		return err
	}
	content, err := aead.Open(nil, nil, s.Sealed, []byte(sessionID(s.secret)))
	if err != nil {
		return err
	}
	var opened sealedContent
	if err := json.Unmarshal(content, &opened); err != nil {
		return err
	}
	s.tokens, s.held = opened.Tokens, opened.Held
	return nil
}

// cookie returns the cookie of the session.
func (s *session) cookie() *http.Cookie {
	return newCookie(sessionCookie, base64.RawURLEncoding.EncodeToString(s.secret), 0)
}

// newCookie returns a cookie for this host that scripts cannot read. maxAge is in seconds: 0 ends it with the browser, -1 removes it. The mode
// is Lax, because the identity provider leads people back with a navigation.
func newCookie(name, value string, maxAge int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: maxAge, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}
