package audit

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// checkpointDomain separates signatures of checkpoints from those of other texts with the same key.
const checkpointDomain = "hcpmesh audit checkpoint"

// coordinate is the length of each half of an ES256 signature (RFC 7518, section 3.4).
const coordinate = 32

// SigningKey is the private key with which a service signs the checkpoints of its writers, and the session gateway its recordings: ECDSA on P-256 with
// SHA-256 (ES256). It is safe for concurrent use.
type SigningKey struct {
	current func() *keyPair
}

// keyPair is a key with its ID.
type keyPair struct {
	private *ecdsa.PrivateKey
	id      string
}

// GenerateKey returns a new random key.
func GenerateKey() (*SigningKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	pair, err := newKeyPair(private)
	return &SigningKey{func() *keyPair { return pair }}, err
}

func newKeyPair(private *ecdsa.PrivateKey) (*keyPair, error) {
	id, err := keyID(&private.PublicKey)
	if err != nil {
		return nil, err
	}
	return &keyPair{private, id}, nil
}

// LoadKey reads a private key from a PEM file (PKCS #8), and follows changes of the file. If the changed file is not such a key, the
// previous one stays in use. Errors do not quote the file.
func LoadKey(path string) (*SigningKey, error) {
	value, err := disk.NewValue(func() (*keyPair, error) { return readKey(path) }, path)
	if err != nil {
		return nil, err
	}
	return &SigningKey{value.Current}, nil
}

func readKey(path string) (*keyPair, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the audit signing key: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, fmt.Errorf("reading the audit signing key: %s has no PEM block PRIVATE KEY", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := key.(*ecdsa.PrivateKey)
	if err != nil || !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("reading the audit signing key: the key in %s is not an ECDSA key on P-256", path)
	}
	return newKeyPair(private)
}

// Create writes the private key to a new file that only its owner can read. It returns an error that wraps fs.ErrExist if the file
// exists.
func (k *SigningKey) Create(path string) error {
	encoded, err := x509.MarshalPKCS8PrivateKey(k.current().private)
	if err != nil {
		return err
	}
	return disk.Create(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600)
}

// PublicPEM returns the public key in PEM.
func (k *SigningKey) PublicPEM() ([]byte, error) {
	encoded, err := x509.MarshalPKIXPublicKey(&k.current().private.PublicKey)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: encoded}), nil
}

// ID returns the ID of the key: the beginning of the SHA-256 of its public key, in hex.
func (k *SigningKey) ID() string { return k.current().id }

func (k *keyPair) sign(domain string, content []byte) ([]byte, error) {
	r, s, err := ecdsa.Sign(rand.Reader, k.private, digest(domain, content))
	if err != nil {
		return nil, fmt.Errorf("signing with the audit key: %w", err)
	}
	signature := make([]byte, 2*coordinate)
	r.FillBytes(signature[:coordinate])
	s.FillBytes(signature[coordinate:])
	return signature, nil
}

// digest returns the digest that is signed. The domain has no newline.
func digest(domain string, content []byte) []byte {
	h := sha256.New()
	h.Write([]byte(domain + "\n"))
	h.Write(content)
	return h.Sum(nil)
}

func keyID(public *ecdsa.PublicKey) (string, error) {
	encoded, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:12]), nil
}

// Keys are the public keys that a verifier trusts, by service and key ID. A service may have several, because checkpoints that were
// signed with an earlier key stay valid.
type Keys map[string]map[string]PublicKey

// ErrUnknownKey is the error for a checkpoint that was signed with a key that the verifier does not have.
var ErrUnknownKey = errors.New("is not a key of the service")

// PublicKey is a public key that a verifier trusts.
type PublicKey struct {
	*ecdsa.PublicKey
	// Until is the end of its use: a checkpoint with a later time is not valid. It is zero for a key that is in use.
	Until time.Time
}

// untilHeader is the header of a PEM block with PublicKey.Until (RFC 3339).
const untilHeader = "Until"

// LoadKeys reads the files NAME.pem of a folder. Each one has the public keys of the service NAME.
func LoadKeys(dir string) (Keys, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.pem"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("reading the public audit keys: %s has no file NAME.pem", dir)
	}
	keys := Keys{}
	for _, file := range files {
		if err := keys.addFile(strings.TrimSuffix(filepath.Base(file), ".pem"), file); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

// FollowKeys reads the public keys of a service from a file, and follows changes of the file. If the changed file has no such keys, the previous
// ones stay in use.
func FollowKeys(service, path string) (current func() Keys, err error) {
	value, err := disk.NewValue(func() (Keys, error) {
		keys := Keys{}
		return keys, keys.addFile(service, path)
	}, path)
	if err != nil {
		return nil, err
	}
	return value.Current, nil
}

// Trust adds the public key of a service.
func (k Keys) Trust(service string, key *SigningKey) { k.TrustUntil(service, key, time.Time{}) }

// TrustUntil is Trust for a key that was replaced.
func (k Keys) TrustUntil(service string, key *SigningKey, until time.Time) {
	now := key.current()
	k.put(service, now.id, PublicKey{&now.private.PublicKey, until})
}

func (k Keys) put(service, id string, key PublicKey) {
	if k[service] == nil {
		k[service] = map[string]PublicKey{}
	}
	k[service][id] = key
}

// addFile adds the public keys of a service from a file.
func (k Keys) addFile(service, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the public audit keys: %w", err)
	}
	blocks, err := parsePublic(content)
	if err == nil && len(blocks) == 0 {
		err = errors.New("the file has no public key")
	}
	if err != nil {
		return fmt.Errorf("reading the public audit keys of %s: %w", path, err)
	}
	for _, block := range blocks {
		k.put(service, block.id, block.key)
	}
	return nil
}

// publicBlock is a PEM block with a public key.
type publicBlock struct {
	id  string
	key PublicKey
}

func parsePublic(content []byte) ([]publicBlock, error) {
	var blocks []publicBlock
	for {
		block, rest := pem.Decode(content)
		if block == nil {
			return blocks, nil
		}
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := parsed.(*ecdsa.PublicKey)
		if err != nil || !ok || public.Curve != elliptic.P256() {
			return nil, errors.New("a PEM block is not an ECDSA public key on P-256")
		}
		key := PublicKey{PublicKey: public}
		if text, ok := block.Headers[untilHeader]; ok {
			if key.Until, err = time.Parse(time.RFC3339, text); err != nil {
				return nil, fmt.Errorf("the header %s of a PEM block: %q is not a time", untilHeader, text)
			}
		}
		id, err := keyID(public)
		if err != nil {
			return nil, err
		}
		blocks, content = append(blocks, publicBlock{id, key}), rest
	}
}

// Verify checks the signature of a checkpoint. The text is the line that ParseLine accepted, without its newline. The key must be
// one of the service that the line's writer belongs to.
func (k Keys) Verify(l Line, text []byte) error {
	key, err := k.trusted(Service(l.Writer), l.Key, l.Time)
	if err != nil {
		return err
	}
	content, _, ok := split(text)
	at := bytes.LastIndex(content, []byte(signatureMember))
	signature, err := base64.RawURLEncoding.Strict().DecodeString(l.Signature)
	if !ok || at < 0 || err != nil || len(signature) != 2*coordinate || l.Kind != CheckpointLine {
		return errors.New("it has no signature of ES256")
	}
	// Members behind the signature are not signed, and would replace those before it.
	if string(content[at:]) != signatureMember+l.Signature+`"` {
		return errors.New("it has members behind its signature")
	}
	if !key.verify(checkpointDomain, content[:at], signature) {
		return fmt.Errorf("its signature does not match the key %s of the service %s", l.Key, Service(l.Writer))
	}
	return nil
}

// ParseCheckpoint parses a line, without its newline, that must be a checkpoint of a writer, and verifies its signature.
func (k Keys) ParseCheckpoint(writer string, text []byte) (Line, error) {
	line, err := ParseLine(text)
	switch {
	case err != nil:
		return Line{}, err
	case line.Writer != writer:
		return Line{}, fmt.Errorf("it is a checkpoint of %s", line.Writer)
	}
	return line, k.Verify(line, text)
}

// trusted returns the key of a service with an ID, which must have been in use at a time.
func (k Keys) trusted(service, id string, at time.Time) (PublicKey, error) {
	key, ok := k[service][id]
	if !ok {
		return PublicKey{}, fmt.Errorf("its key %s %w %s", id, ErrUnknownKey, service)
	}
	if !key.Until.IsZero() && at.After(key.Until) {
		return PublicKey{}, fmt.Errorf("its time is after the end of the use of the key %s of the service %s at %s", id, service, key.Until.Format(time.RFC3339))
	}
	return key, nil
}

// verify reports whether a signature of 2*coordinate bytes is that of a content.
func (k PublicKey) verify(domain string, content, signature []byte) bool {
	r, s := new(big.Int).SetBytes(signature[:coordinate]), new(big.Int).SetBytes(signature[coordinate:])
	return ecdsa.Verify(k.PublicKey, digest(domain, content), r, s)
}
