package audit

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// CreatePair creates a private key, unless the file exists, and adds its public key to the file of the public keys of its service.
func CreatePair(private, public string) error {
	key, err := GenerateKey()
	if err != nil {
		return err
	}
	if err := key.Create(private); errors.Is(err, fs.ErrExist) {
		if key, err = LoadKey(private); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	return key.Publish(public)
}

// Publish adds the public key of a signing key to the file of the public keys of its service, unless the file has it. The other keys of the
// file stay: checkpoints that they signed stay valid.
func (k *SigningKey) Publish(path string) error {
	content, blocks, err := readPublic(path)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(blocks, func(b publicBlock) bool { return b.id == k.ID() }) {
		return nil
	}
	public, err := k.PublicPEM()
	if err != nil {
		return err
	}
	return replacePublic(path, append(bytes.TrimSuffix(content, []byte("\n")), append([]byte("\n"), public...)...))
}

// Retire ends the use of all keys of a file of public keys but one, unless it has ended: their checkpoints with a time after until are not
// valid. It returns an error if the file does not have the key that stays.
func Retire(path, id string, until time.Time) error {
	_, blocks, err := readPublic(path)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(blocks, func(b publicBlock) bool { return b.id == id && b.key.Until.IsZero() }) {
		return fmt.Errorf("%s does not have the key %s", path, id)
	}
	var content bytes.Buffer
	for _, block := range blocks {
		if block.id != id && block.key.Until.IsZero() {
			block.key.Until = until.Truncate(time.Second).Add(time.Second) // the header has no fractions
		}
		if err := block.write(&content); err != nil {
			return err
		}
	}
	return replacePublic(path, content.Bytes())
}

// InUse returns the IDs of the keys of a file of public keys whose use has not ended.
func InUse(path string) ([]string, error) {
	_, blocks, err := readPublic(path)
	var ids []string
	for _, block := range blocks {
		if block.key.Until.IsZero() {
			ids = append(ids, block.id)
		}
	}
	return ids, err
}

func (b publicBlock) write(to *bytes.Buffer) error {
	encoded, err := x509.MarshalPKIXPublicKey(b.key.PublicKey)
	if err != nil {
		return err
	}
	block := &pem.Block{Type: "PUBLIC KEY", Bytes: encoded}
	if !b.key.Until.IsZero() {
		block.Headers = map[string]string{untilHeader: b.key.Until.UTC().Format(time.RFC3339)}
	}
	return pem.Encode(to, block)
}

// readPublic reads a file of public keys. A missing file has no keys.
func readPublic(path string) ([]byte, []publicBlock, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	blocks, err := parsePublic(content)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the public audit keys of %s: %w", path, err)
	}
	return content, blocks, nil
}

// replacePublic replaces a file of public keys in one step.
func replacePublic(path string, content []byte) error {
	return disk.Replace(path, bytes.TrimPrefix(content, []byte("\n")), 0o644)
}
