// Package signature verifies that the publisher of OpenShift has signed the digest of a release image.
//
// A signature is an OpenPGP message in the "atomic container signature" format, which OpenShift's publisher has for each release and
// which OpenShift's own cluster version operator verifies. A Store has the messages by digest. A TrustRoot has the public keys of
// publishers. A Verifier reads messages from a store, verifies them with a trust root and caches them. A message also names the image's
// pull specification, whose tag is the version of the release and its architecture: a Verifier can verify which version a digest is.
package signature

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	strictjson "sigs.k8s.io/json"
)

// MaxMessage is the maximum size of a message and of its content. Messages of OpenShift's releases are below 2 KiB.
const MaxMessage = 64 << 10

// messageType is the type in the content of a message.
const messageType = "atomic container signature"

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// content is the signed content of a message.
type content struct {
	Critical struct {
		Type  string `json:"type"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Identity struct {
			Reference Reference `json:"docker-reference"`
		} `json:"identity"`
	} `json:"critical"`
	Optional struct {
		Creator   string `json:"creator,omitempty"`
		Timestamp int64  `json:"timestamp,omitempty"`
	} `json:"optional"`
}

// TrustRoot is a set of public keys. It accepts a message that one of them has signed. It is safe for concurrent use.
type TrustRoot struct {
	keys openpgp.EntityList
}

// LoadTrustRoot reads the keys from a file.
func LoadTrustRoot(path string) (*TrustRoot, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	root, err := ParseTrustRoot(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return root, nil
}

// openshift has the key with which OpenShift's publisher signs releases, as OpenShift's releases themselves contain it.
//
//go:embed openshift.asc
var openshift []byte

// OpenShift returns the trust root of OpenShift's publisher, key 567E347AD0044ADE55BA8A5F199E2F91FD431D51 of Red Hat.
func OpenShift() (*TrustRoot, error) { return ParseTrustRoot(openshift) }

// OpenShiftStore is the URL of the signatures of OpenShift's publisher.
const OpenShiftStore = "https://mirror.openshift.com/pub/openshift-v4/signatures/openshift/release"

// blockEnd is the last line of an armored key.
const blockEnd = "-----END PGP PUBLIC KEY BLOCK-----"

// ParseTrustRoot reads one or more armored blocks of OpenPGP public keys.
func ParseTrustRoot(text []byte) (*TrustRoot, error) {
	root := &TrustRoot{}
	for rest := string(text); strings.TrimSpace(rest) != ""; {
		block, after, found := strings.Cut(rest, blockEnd)
		if !found {
			return nil, errors.New("the text is not a list of armored OpenPGP public keys")
		}
		keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(block + blockEnd + "\n"))
		if err != nil {
			return nil, fmt.Errorf("read an OpenPGP public key: %w", err)
		}
		root.keys = append(root.keys, keys...)
		rest = after
	}
	if len(root.keys) == 0 {
		return nil, errors.New("there is no OpenPGP public key")
	}
	for _, key := range root.keys {
		if key.PrivateKey != nil {
			return nil, fmt.Errorf("key %X contains a private key", key.PrimaryKey.Fingerprint)
		}
	}
	return root, nil
}

// String returns the fingerprints of the keys.
func (r *TrustRoot) String() string {
	var prints []string
	for _, key := range r.keys {
		prints = append(prints, fmt.Sprintf("%X", key.PrimaryKey.Fingerprint))
	}
	slices.Sort(prints)
	return strings.Join(slices.Compact(prints), ", ")
}

// Verify returns the reference in the message if a key of the trust root has signed the message, neither the key nor the signature
// had expired at the time now, the key is not revoked, and the content names the digest.
func (r *TrustRoot) Verify(digest string, message []byte, now time.Time) (reference Reference, err error) {
	// The OpenPGP library dereferences optional parts of packets, and messages are input from outside.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read the message: it is malformed: %v", p)
		}
	}()
	config := &packet.Config{Time: func() time.Time { return now }}
	details, err := openpgp.ReadMessage(bytes.NewReader(message), r.keys, nil, config)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the message: %w", err)
	case !details.IsSigned:
		return "", errors.New("the message is not signed")
	case details.SignedBy == nil:
		return "", fmt.Errorf("the message is signed by key %016X, which is not in the trust root", details.SignedByKeyId)
	}
	// The library verifies the signature when it has read the whole content.
	text, err := io.ReadAll(io.LimitReader(details.UnverifiedBody, MaxMessage+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the message: %w", err)
	case len(text) > MaxMessage:
		return "", fmt.Errorf("the content is larger than %d bytes", MaxMessage)
	case details.SignatureError != nil:
		return "", fmt.Errorf("verify the message: %w", details.SignatureError)
	case details.Signature == nil:
		return "", errors.New("the message has no signature")
	}
	return verifyContent(text, digest)
}

func verifyContent(text []byte, digest string) (Reference, error) {
	var c content
	if rejected, err := strictjson.UnmarshalStrict(text, &c); err != nil || len(rejected) > 0 {
		return "", fmt.Errorf("read the signed content: %w", errors.Join(append(rejected, err)...))
	}
	switch {
	case c.Critical.Type != messageType:
		return "", fmt.Errorf("critical.type of the signed content is %q and not %q", c.Critical.Type, messageType)
	case c.Critical.Identity.Reference == "":
		return "", errors.New("critical.identity.docker-reference of the signed content is empty")
	case c.Critical.Image.Digest != digest:
		return "", fmt.Errorf("critical.image.docker-manifest-digest of the signed content is %q", c.Critical.Image.Digest)
	}
	return c.Critical.Identity.Reference, nil
}
