package keyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/tink-crypto/tink-go/v2/keyset"

	"github.com/hcpmesh/hcpmesh/internal/disk"
)

// ReadPublic reads a public keyset. It refuses a private one.
func ReadPublic(path string) (*keyset.Handle, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	handle, err := keyset.ReadWithNoSecrets(keyset.NewJSONReader(bytes.NewReader(content)))
	if err != nil {
		// The reader's error may quote a private key.
		return nil, fmt.Errorf("%s is not a public Tink keyset in JSON", path)
	}
	return handle, nil
}

// WritePublic writes the public keyset that belongs to a private one to a file, unless the file has it. Everybody can read the file.
func WritePublic(privatePath, publicPath string) error {
	handle, err := Read(privatePath)
	if err != nil {
		return fmt.Errorf("read private keys: %w", err)
	}
	public, err := handle.Public()
	if err != nil {
		return fmt.Errorf("%s has no public keys: %w", privatePath, err)
	}
	var text bytes.Buffer
	if err := public.WriteWithNoSecrets(keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("write public keys: %w", err)
	}
	if existing, err := os.ReadFile(publicPath); err == nil && bytes.Equal(existing, text.Bytes()) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return disk.Replace(publicPath, text.Bytes(), 0o644)
}
